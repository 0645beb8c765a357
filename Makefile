# `make help` lists the targets. `make demo` and `make build` need Go, gcc and
# make only; `make test` installs what else the tests need (Debian).

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --warn-undefined-variables --no-print-directory
.DEFAULT_GOAL := build

GO      ?= go
DESTDIR ?=
PREFIX  ?= /usr
# Where packages are put.
DIST    ?= dist
# How many seconds all fuzz targets take together.
FUZZ_SECONDS ?= 60
# Arguments for `make demo`.
DEMO_ARGS ?=

VERSION  := $(shell cat VERSION)
REVISION := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)

# The journal reader on libsystemd is compiled in where the headers are; without
# them startupd reads the journal through journalctl.
TAGS := $(shell pkg-config --exists libsystemd 2>/dev/null && echo sdjournal)

# go-nvml's headers declare functions that NVIDIA has deprecated. The flag is
# put in once: cgo's flags are part of the build cache's key.
NO_DEPRECATED := -Wno-deprecated-declarations
CGO_CFLAGS ?= -O2 -g
override CGO_CFLAGS := $(filter-out $(NO_DEPRECATED),$(CGO_CFLAGS)) $(NO_DEPRECATED)
export CGO_CFLAGS

# Packages without a goroutine (test/arch sees to it): nothing can race in them.
CORE := ./pkg/event ./pkg/profile ./pkg/triage ./pkg/phases

E2E := ./test/e2e ./test/packages ./test/scrape

.PHONY: help
help: ## List the targets.
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: build
build: ## Build bin/startupd.
	$(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/startupd ./cmd/startupd

.PHONY: demo
demo: build ## Watch a recorded restart, speeded up, on http://localhost:10944/metrics.
	./bin/startupd demo $(DEMO_ARGS)

.PHONY: deps
deps: ## Install what the tests need (Debian packages, as root or by sudo).
	scripts/install-test-deps

.PHONY: test
test: deps ## Install what is needed, then run everything that CI runs.
	$(MAKE) check
	$(MAKE) deploy
	$(MAKE) race
	$(MAKE) corpus
	$(MAKE) parity
	$(MAKE) e2e
	$(MAKE) browser
	$(MAKE) fuzz FUZZ_SECONDS=20
	$(MAKE) bench-smoke

.PHONY: check
check: ## Format, vet, staticcheck, architecture, metric names.
	scripts/check

.PHONY: deploy
deploy: ## Alerts, routes and messages, by promtool and a real Alertmanager.
	$(GO) test -count=1 ./test/deploy

.PHONY: race
race: ## Unit tests with the race detector, with and without libsystemd.
	$(GO) test -race -tags '$(TAGS)' $(shell $(GO) list ./... | grep -vE '/test/(arch|corpus|parity|bench|e2e|deploy)$$|/pkg/(event|profile|triage|phases)$$|/cmd/startupd$$')
	$(GO) test -race -tags '$(TAGS)' -skip TestScripts ./cmd/startupd
	$(GO) test -tags '$(TAGS)' -run TestScripts ./cmd/startupd
	$(GO) test $(CORE)
	$(GO) test ./pkg/journal
	$(GO) test -run 'TestScripts/(explain|status|wait)' ./cmd/startupd

.PHONY: corpus
corpus: ## Explain every recorded start of testdata and print the score.
	$(GO) test -count=1 -v ./test/corpus

.PHONY: parity
parity: ## The same verdict in pieces, replayed, live and from journal files.
	$(GO) test -count=1 -tags '$(TAGS)' ./test/parity

.PHONY: e2e
e2e: ## The daemon under a real systemd in a container (root).
	$(GO) test -count=1 -p 1 -timeout 15m -tags 'e2e $(TAGS)' $(E2E)

.PHONY: browser
browser: ## The page in a real Chromium.
	$(GO) test -count=1 -timeout 10m -tags browser ./test/browser

.PHONY: fuzz
fuzz: ## Fuzz the decoders and loaders for FUZZ_SECONDS in all.
	GO='$(GO)' scripts/fuzz $(FUZZ_SECONDS) ./pkg/journal ./pkg/profile ./pkg/triage ./pkg/phases ./pkg/history ./internal/app/explain ./test/parity

.PHONY: bench
bench: deps ## All measurements of docs/benchmarks.md, with their bounds.
	$(GO) test -count=1 -timeout 90m -tags 'bench $(TAGS)' -run '^$$' -bench . -benchtime 1x ./test/bench -bounds
	$(GO) test -run '^$$' -bench . ./pkg/profile ./pkg/exporter

.PHONY: bench-smoke
bench-smoke: ## The same on little data, without bounds: they still run.
	$(GO) test -count=1 -timeout 10m -tags 'bench $(TAGS)' -run '^$$' -bench . -benchtime 1x ./test/bench -small
	$(GO) test -run '^$$' -bench . -benchtime 100x ./pkg/profile ./pkg/exporter

.PHONY: gpu
gpu: ## The tests that need an NVIDIA driver and a GPU.
	$(GO) test -count=1 -tags gpu ./pkg/gpu

.PHONY: golden
golden: ## Rewrite the golden files; review the diff.
	scripts/golden

.PHONY: dashboards
dashboards: ## Make deploy/grafana/dashboards from tools/dashboards/board.
	$(GO) generate ./tools/dashboards

.PHONY: pictures
pictures: build ## Draw the terminal pictures of docs/images (six minutes).
	GO='$(GO)' scripts/pictures

.PHONY: install
install: build ## Install under DESTDIR: binary, unit, user, defaults, manual, completions.
	install -D -m 0755 bin/startupd $(DESTDIR)$(PREFIX)/bin/startupd
	bin/startupd man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	bin/startupd completion bash | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/startupd
	bin/startupd completion zsh | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_startupd
	bin/startupd completion fish | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/startupd.fish
	install -D -m 0644 deploy/systemd/startupd.service $(DESTDIR)$(PREFIX)/lib/systemd/system/startupd.service
	install -D -m 0644 deploy/systemd/sysusers.d/startupd.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/startupd.conf
	test -e $(DESTDIR)/etc/default/startupd || install -D -m 0644 deploy/systemd/startupd.default $(DESTDIR)/etc/default/startupd

.PHONY: package
package: ## Build dist/*.deb and dist/*.rpm of GOARCH.
	GO='$(GO)' VERSION='$(VERSION)' TAGS='$(TAGS)' LDFLAGS='$(LDFLAGS)' DIST='$(DIST)' scripts/package

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin dist
