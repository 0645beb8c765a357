package fitness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
	"github.com/startupd/startupd/pkg/web/api"
	"github.com/startupd/startupd/pkg/web/client"
)

// Service is the daemon's unit.
const Service = "startupd.service"

func checkUser(_ context.Context, h *host) outcome {
	if h.o.Daemon {
		return ok("the rights of %s are tried", h.o.User)
	}
	return unknown(fmt.Sprintf("what the daemon's user may do: what follows is true of %s", h.o.User),
		"run it as root, where "+Service+" is installed")
}

func checkConfig(_ context.Context, h *host) outcome {
	ts, err := h.targets()
	if err != nil {
		return fail(err.Error(), "mend it; startupd does not start so")
	}
	var names []string
	globs := 0
	for _, t := range ts {
		names = append(names, t.Unit)
		if t.Glob() {
			globs++
		}
	}
	from := h.o.Arguments
	if h.o.App.ConfigFile != "" {
		from = h.o.App.ConfigFile
	}
	detail := fmt.Sprintf("%s of %s: %s", count(len(names), "target"), from, strings.Join(names, ", "))
	if globs > 0 && len(names) == globs && len(h.unitNames(context.Background())) == 0 && !h.elsewhere() {
		return warn(detail+"; no loaded unit matches yet", "`systemctl list-units` shows the names; a unit that comes later is found")
	}
	return outcome{status: OK, detail: detail}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// checkProfiles loads the profiles and proves all rules by their examples.
func checkProfiles(_ context.Context, h *host) outcome {
	set, err := h.profiles()
	if err != nil {
		return fail(err.Error(), "mend the file; startupd does not start so. `startupd rules test` tries a rule")
	}
	rules := 0
	var engines []string
	for _, p := range set.Profiles() {
		rules += len(p.Rules)
		engines = append(engines, p.Engine)
		if err := p.SelfTest(); err != nil {
			return fail(err.Error(), "a rule no longer selects its own example: mend it, or put it before the rule that takes the line")
		}
	}
	detail := fmt.Sprintf("%s (%s), each proved by its examples", count(rules, "rule"), strings.Join(engines, ", "))
	if h.o.App.ProfileDir == "" {
		return outcome{status: OK, detail: detail}
	}
	own, replaced := ownRules(set)
	detail += fmt.Sprintf("; %s from %s", count(own, "rule"), h.o.App.ProfileDir)
	if len(replaced) > 0 {
		detail += ", which replace the built-in " + strings.Join(replaced, ", ")
	}
	if own == 0 {
		return warn(detail, "is it the right directory? Profiles are files *.yaml there")
	}
	return outcome{status: OK, detail: detail}
}

// ownRules counts the rules that are not built in, and names those that take the
// place of one that is.
func ownRules(set *profile.Set) (own int, replaced []string) {
	builtin, err := profile.Builtin()
	if err != nil {
		return 0, nil
	}
	for _, p := range set.Profiles() {
		known := map[string]*profile.Rule{}
		if b := builtin.Profile(p.Engine); b != nil {
			for _, r := range b.Rules {
				known[r.ID] = r
			}
		}
		for _, r := range p.Rules {
			old := known[r.ID]
			if old != nil && old.Regex == r.Regex && old.Role == r.Role && old.Class == r.Class && old.Example == r.Example {
				continue
			}
			own++
			if old != nil && !slices.Contains(replaced, r.ID) {
				replaced = append(replaced, r.ID)
			}
		}
	}
	slices.Sort(replaced)
	return own, replaced
}

// askDaemon asks the daemon for its status over the socket.
func (h *host) askDaemon(ctx context.Context) (*api.Status, error) {
	c := client.New(client.Options{Socket: h.o.App.APISocket})
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, h.o.Deadline)
	defer cancel()
	return c.Status(ctx)
}

func checkDaemon(_ context.Context, h *host) outcome {
	socket := h.o.App.APISocket
	if socket == "" {
		return unknown("whether a daemon runs: --api.socket is empty", "")
	}
	st, err := h.daemon()
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unknown(fmt.Sprintf("no right to open %s", socket), "run it as root, or as a member of the daemon's group")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return warn(fmt.Sprintf("no daemon answers on %s", socket), "start it: systemctl enable --now startupd")
	case err != nil:
		return fail(fmt.Sprintf("%s: %v", socket, err), "look at `journalctl -u startupd`; restart it: systemctl restart startupd")
	}
	return judgeDaemon(st, h.o.App.Version)
}

func judgeDaemon(st *api.Status, version string) outcome {
	up := 0
	var down []string
	blind := false
	for _, s := range st.Sources {
		if s.Up {
			up++
			continue
		}
		name := s.Source
		if s.Unit != "" {
			name += " of " + s.Unit
		}
		down = append(down, fmt.Sprintf("%s is %s (%s)", name, s.State, s.Reason))
		blind = blind || s.Source == event.SourceJournal
	}
	detail := fmt.Sprintf("it runs, version %s, and watches %s; %s up", version, count(len(st.Units), "unit"), count(up, "source"))
	switch {
	case blind:
		return fail(detail+"; "+strings.Join(down, "; "), "see the checks of the journal")
	case st.Version != version:
		return warn(fmt.Sprintf("version %s runs, this program is %s", st.Version, version), "restart it: systemctl restart startupd")
	case len(down) > 0:
		return warn(detail+"; "+strings.Join(down, "; "), "see the check of each source")
	}
	return outcome{status: OK, detail: detail}
}

// checkArguments compares what is configured with what runs.
func checkArguments(ctx context.Context, h *host) outcome {
	if h.o.DaemonArgs == nil || h.elsewhere() {
		return outcome{}
	}
	p, err := h.properties(ctx, Service)
	if err != nil {
		return outcome{}
	}
	pid, _ := p.number("MainPID")
	if pid == 0 {
		return outcome{}
	}
	b, err := os.ReadFile(h.path(fmt.Sprintf("/proc/%d/cmdline", pid)))
	if err != nil {
		return unknown(fmt.Sprintf("the running daemon's arguments: %v", err), "")
	}
	var argv []string
	for a := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		argv = append(argv, string(a))
	}
	argv = argv[min(1, len(argv)):]
	if len(argv) > 0 && argv[0] == "serve" {
		argv = argv[1:]
	}
	if slices.Equal(argv, h.o.DaemonArgs) {
		return ok("the running daemon has those of %s", h.o.Arguments)
	}
	return warn(fmt.Sprintf("the running daemon has %q, %s says %q", strings.Join(argv, " "), h.o.Arguments, strings.Join(h.o.DaemonArgs, " ")),
		"restart it: systemctl restart startupd")
}
