package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/startupd/startupd/pkg/profile"
)

const venvSite = "/opt/venv/lib/python3.12/site-packages"

// venv makes a virtual environment with the engine's console script.
func (h *host) venv(cfg string) {
	h.t.Helper()
	h.file("/usr/bin/python3.12", "\x7fELF")
	h.link("/opt/venv/bin/python3", "/usr/bin/python3.12")
	h.link("/opt/venv/bin/python", "python3")
	h.file("/opt/venv/pyvenv.cfg", cfg)
	h.file("/opt/venv/bin/vllm", "#!/opt/venv/bin/python\nimport sys\n")
	h.dir(venvSite)
}

const plainVenv = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.12.3\n"

// dist installs a distribution, with requirements.
func (h *host) dist(site, name, version string, requires ...string) {
	h.t.Helper()
	text := fmt.Sprintf("Metadata-Version: 2.4\nName: %s\nVersion: %s\n", name, version)
	for _, r := range requires {
		text += "Requires-Dist: " + r + "\n"
	}
	h.file(fmt.Sprintf("%s/%s-%s.dist-info/METADATA", site, strings.ReplaceAll(name, "-", "_"), version), text+"\nA description.\nName: other\n")
}

func TestPackages(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(h *host)
		env    string
		status Status
		text   string
	}{
		{"fit", func(h *host) {
			h.dist(venvSite, "flashinfer-python", "0.6.4")
			h.dist(venvSite, "flashinfer-cubin", "0.6.4")
			h.dist(venvSite, "flashinfer-jit-cache", "0.6.4+cu129")
		}, "", OK, "3 packages fit each other (Python 3.12, /opt/venv/bin/python): flashinfer-cubin 0.6.4, "},
		{"the cubins differ", func(h *host) {
			h.dist(venvSite, "flashinfer_python", "0.6.4")
			h.dist(venvSite, "flashinfer_cubin", "0.6.3")
		}, "", Fail, "flashinfer-cubin 0.6.3 does not match flashinfer-python 0.6.4: importing flashinfer fails"},
		{"in a suffix", func(h *host) {
			h.dist(venvSite, "flashinfer-python", "0.6.4")
			h.dist(venvSite, "flashinfer-cubin", "0.6.4+cu129")
		}, "", Fail, "flashinfer-cubin 0.6.4+cu129 does not match"},
		{"the cache differs", func(h *host) {
			h.dist(venvSite, "flashinfer-python", "0.6.1")
			h.dist(venvSite, "flashinfer-jit-cache", "0.6.10+cu129")
		}, "", Fail, "flashinfer-jit-cache 0.6.10+cu129 does not match"},
		{"they are not compared", func(h *host) {
			h.dist(venvSite, "flashinfer-python", "0.6.4")
			h.dist(venvSite, "flashinfer-cubin", "0.6.3")
		}, "FLASHINFER_DISABLE_VERSION_CHECK=1", Warning, "keeps the engine from comparing them"},
		{"a pin is met, suffix apart", func(h *host) {
			h.dist(venvSite, "vllm", "0.16.0", "torch==2.9.1", "numpy==1.0")
			h.dist(venvSite, "torch", "2.9.1+cu129", `triton==3.5.1; platform_system == "Linux"`)
			h.dist(venvSite, "triton", "3.5.1")
		}, "", OK, "3 packages fit"},
		{"a pin is not met", func(h *host) {
			h.dist(venvSite, "vllm", "0.16.0", "torch (==2.9.1)")
			h.dist(venvSite, "torch", "2.8.0")
		}, "", Warning, "vllm 0.16.0 requires torch==2.9.1, and 2.8.0 is installed"},
		{"a pinned one is missing", func(h *host) {
			h.dist(venvSite, "vllm", "0.16.0", "torch[cuda] == 2.9.1")
		}, "", Warning, "requires torch==2.9.1, which is not installed"},
		{"a pin for others", func(h *host) {
			h.dist(venvSite, "vllm", "0.16.0", `torch==2.9.1; sys_platform == "darwin"`, `triton==1; extra == "old"`)
			h.dist(venvSite, "torch", "2.8.0")
		}, "", OK, "2 packages fit"},
		{"a pin that depends", func(h *host) {
			h.dist(venvSite, "vllm", "0.16.0", `torch==2.9.1; platform_release == "7"`)
			h.dist(venvSite, "torch", "2.8.0")
		}, "", Unknown, `where platform_release == "7", which is not known; 2.8.0 is installed`},
		{"installed twice", func(h *host) {
			h.dist(venvSite, "torch", "2.8.0")
			h.dist(venvSite, "torch", "2.9.1")
		}, "", Warning, "torch is installed twice in one folder, in versions 2.8.0 and 2.9.1"},
		{"no metadata", func(h *host) { h.dir(venvSite + "/torch-2.9.1.dist-info") }, "", Unknown, "torch-2.9.1.dist-info: it does not exist"},
		{"another's metadata", func(h *host) {
			h.file(venvSite+"/torch-2.9.1.dist-info/METADATA", "Name: evil\nVersion: 1\n")
		}, "", Unknown, "its metadata is of evil"},
		{"binary metadata", func(h *host) {
			h.file(venvSite+"/torch-2.9.1.dist-info/METADATA", strings.Repeat("\x00\xff", 5000))
		}, "", Unknown, "has no name or version"},
		{"nothing of it", func(h *host) { h.dist(venvSite, "numpy", "1.0") }, "", Unknown, "none of the engine's packages"},
		{"by PYTHONPATH", func(h *host) { h.dist("/srv/lib", "torch", "2.9.1") }, "PYTHONPATH=/srv/lib:relative", OK, "torch 2.9.1"},
		{"moved by PYTHONHOME", func(*host) {}, "PYTHONHOME=/x", Unknown, "PYTHONHOME=/x moves the environment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.venv(plainVenv)
			c.set(h)
			o := h.options(cards(1, 1, 80), "/opt/venv/bin/vllm", "serve", "m")
			if c.env != "" {
				o.Environ = []string{c.env}
			}
			r := Run(t.Context(), o)
			got := want(t, r, CheckPackages, c.status, c.text)
			if (c.status == Fail) != (got.Class == "package_mismatch") || (c.status == Fail) != (r.Verdict == NotFit) {
				t.Errorf("class %q, verdict %s", got.Class, r.Verdict)
			}
		})
	}
}

// The version tells which default holds.
func TestEngineVersion(t *testing.T) {
	for version, text := range map[string]string{"0.16.0rc2.dev344+gabc": "needs 0.90 x", "0.28.0": "needs 0.92 x", "0.22": "needs 0.90 or 0.92"} {
		h := newHost(t)
		h.venv(plainVenv)
		h.dist(venvSite, "vllm", version)
		r := Run(t.Context(), h.options(cards(1, 1, 80), "/opt/venv/bin/vllm", "serve", "m"))
		want(t, r, CheckGPUMemory, OK, text)
		if r.EngineVersion != version {
			t.Errorf("version %q, want %s", r.EngineVersion, version)
		}
	}
}

func TestFindPython(t *testing.T) {
	long := "/opt/" + strings.Repeat("x", 200) + "/bin/python"
	for _, c := range []struct {
		name string
		set  func(h *host)
		argv string
		want string // interpreter, version and the first folder, or an error
	}{
		{"a console script", func(h *host) { h.venv(plainVenv) }, "/opt/venv/bin/vllm serve m", "/opt/venv/bin/python 3.12 " + venvSite},
		{"the interpreter", func(h *host) { h.venv(plainVenv) }, "/opt/venv/bin/python -m vllm.entrypoints.openai.api_server", "/opt/venv/bin/python 3.12 " + venvSite},
		{"something in front", func(h *host) { h.venv(plainVenv) }, "numactl -N 0 /opt/venv/bin/vllm serve m", "/opt/venv/bin/python 3.12 " + venvSite},
		{"by PATH", func(h *host) {
			h.venv(plainVenv)
			h.link("/usr/local/bin/vllm", "/opt/venv/bin/vllm")
		}, "vllm serve m", "/opt/venv/bin/python 3.12 " + venvSite},
		{"env in the #! line", func(h *host) {
			h.venv(plainVenv)
			h.file("/opt/venv/bin/vllm", "#!/usr/bin/env -S python3\n")
			h.link("/usr/local/bin/python3", "/opt/venv/bin/python3")
			h.dir("/usr/lib/python3/dist-packages")
		}, "/opt/venv/bin/vllm serve m", "/usr/local/bin/python3 3.12 /root/.local/lib/python3.12/site-packages"},
		{"a long path", func(h *host) {
			h.file(filepath.Dir(filepath.Dir(long))+"/pyvenv.cfg", "version_info = 3.11.2.final.0\n")
			h.dir(filepath.Dir(filepath.Dir(long)) + "/lib/python3.11/site-packages")
			h.file(long, "\x7fELF")
			h.file("/opt/venv/bin/vllm", "#!/bin/sh\n'''exec' "+long+" \"$0\" \"$@\"\n' '''\n")
		}, "/opt/venv/bin/vllm serve m", long + " 3.11 " + filepath.Dir(filepath.Dir(long)) + "/lib/python3.11/site-packages"},
		{"conda", func(h *host) {
			h.file("/opt/conda/envs/llm/bin/python3.11", "\x7fELF")
			h.link("/opt/conda/envs/llm/bin/python", "python3.11")
			h.dir("/opt/conda/envs/llm/lib/python3.11/site-packages")
		}, "/opt/conda/envs/llm/bin/python -m vllm.entrypoints.openai.api_server", "/opt/conda/envs/llm/bin/python 3.11 /root/.local/lib/python3.11/site-packages"},
		{"no virtual environment's version", func(h *host) {
			h.venv("home = /usr/bin\n")
			h.dir("/opt/venv/lib/python3.11/site-packages")
			h.link("/opt/venv/bin/other", "/usr/bin/python")
			h.file("/opt/venv/bin/vllm", "#!/opt/venv/bin/python3\n")
			h.file("/usr/bin/python3.12", "")
		}, "/opt/venv/bin/vllm serve m", "/opt/venv/bin/python3 3.12 " + venvSite},
		{"the interpreter is gone", func(h *host) { h.file("/opt/venv/bin/vllm", "#!/opt/gone/bin/python3\n") }, "/opt/venv/bin/vllm serve m", "error: the interpreter /opt/gone/bin/python3 does not exist"},
		{"links in a circle", func(h *host) {
			h.link("/opt/venv/bin/python3", "python")
			h.link("/opt/venv/bin/python", "python3")
			h.file("/opt/venv/bin/vllm", "#!/opt/venv/bin/python3\n")
		}, "/opt/venv/bin/vllm serve m", "error: the interpreter /opt/venv/bin/python3 does not exist"},
		{"a program of its own", func(h *host) { h.file("/opt/venv/bin/vllm", "\x7fELF") }, "/opt/venv/bin/vllm serve m", "error: " + errNoPython.Error()},
		{"two versions", func(h *host) {
			h.file("/opt/py/bin/python", "\x7fELF")
			h.dir("/opt/py/lib/python3.11/site-packages")
			h.dir("/opt/py/lib/python3.12/site-packages")
		}, "/opt/py/bin/python -m vllm.entrypoints.x", "error: /opt/py has packages for 2 versions of Python"},
		{"a folder of packages that is not there", func(h *host) {
			h.file("/opt/py/bin/python3.12", "\x7fELF")
		}, "/opt/py/bin/python3.12 -m vllm.entrypoints.x", "error: /opt/py has no packages for Python 3.12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.set(h)
			cmd := h.found(Unit{Argv: strings.Fields(c.argv)})
			p, err := findPython(&h.sys, cmd)
			got := ""
			if err != nil {
				got = "error: " + err.Error()
			} else {
				got = fmt.Sprintf("%s %s %s", p.interpreter, p.version, p.sites[0])
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// With the system's packages an environment has its own first, then the system's.
func TestSystemSites(t *testing.T) {
	h := newHost(t)
	h.venv("home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.12.3\n")
	h.dist(venvSite, "torch", "2.9.1")
	h.dist("/usr/lib/python3/dist-packages", "torch", "2.0.0")
	h.dist("/usr/local/lib/python3.12/dist-packages", "triton", "3.5.1")
	h.file("/usr/lib/python3/dist-packages/numba-0.6.egg-info/PKG-INFO", "Name: numba\nVersion: 0.6\n")
	h.file("/usr/lib/python3/dist-packages/xformers-0.1.egg-info", "Name: xformers\nVersion: 0.1\n")
	o := h.options(cards(1, 1, 80), "/opt/venv/bin/vllm", "serve", "m")
	want(t, Run(t.Context(), o), CheckPackages, OK, "numba 0.6, torch 2.9.1, triton 3.5.1, xformers 0.1")
}

// What stands where a file should never holds the check up.
func TestHostileSites(t *testing.T) {
	h := newHost(t)
	h.venv(plainVenv)
	h.dir(venvSite + "/torch-2.9.1.dist-info")
	if err := syscall.Mkfifo(filepath.Join(h.root, venvSite, "torch-2.9.1.dist-info/METADATA"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.link(venvSite+"/triton-1.dist-info/METADATA", "METADATA")
	h.file(venvSite+"/xformers-1.dist-info/METADATA", "Name: xformers\nVersion: 1\n"+strings.Repeat("Requires-Dist: torch==1\n", 5*maxRequires)+strings.Repeat("x", maxMetadata))
	for i := range 200 {
		h.file(fmt.Sprintf("%s/numba-%d.dist-info/METADATA", venvSite, i), "Name: numba\nVersion: 1\n")
	}
	r := Run(t.Context(), h.options(cards(1, 1, 80), "/opt/venv/bin/vllm", "serve", "m"))
	want(t, r, CheckPackages, Unknown, "is no regular file")
	want(t, r, CheckPackages, Unknown, "triton-1.dist-info")
	want(t, r, CheckPackages, Warning, "numba is installed twice")
	if n := len(of(r, CheckPackages)); n > 50 {
		t.Errorf("%d results", n)
	}
	if err := os.Chmod(filepath.Join(h.root, venvSite), 0); err != nil {
		t.Fatal(err)
	}
}

func TestMarkers(t *testing.T) {
	e := environment{python: "3.12", machine: "x86_64"}
	for _, c := range []struct {
		marker string
		want   truth
	}{
		{"", isTrue},
		{`sys_platform == "linux"`, isTrue},
		{`"linux" == sys_platform`, isTrue},
		{`platform_system == 'Linux' and platform_machine == 'x86_64'`, isTrue},
		{`platform_machine != "aarch64"`, isTrue},
		{`platform_machine in "x86_64 AMD64"`, isTrue},
		{`platform_machine not in "x86_64 AMD64"`, isFalse},
		{`python_version >= "3.9"`, isTrue},
		{`python_version < "3.9"`, isFalse},
		{`python_version < "3.9" or sys_platform == "linux"`, isTrue},
		{`(python_version < "3.9" or sys_platform == "linux") and os_name == "nt"`, isFalse},
		{`extra == "cuda"`, isFalse},
		{`extra == 'cuda' and platform_release == "x"`, isFalse},
		{`platform_release == "x"`, unsure},
		{`platform_release == "x" or os_name == "posix"`, isTrue},
		{`python_full_version < "3.12.1"`, unsure},
		{`os_name ~= "posix"`, unsure},
		{`os_name`, unsure}, {`os_name ==`, unsure}, {`== "x"`, unsure}, {`(os_name == "posix"`, unsure},
		{`os_name == "posix`, unsure}, {`os_name == "posix" garbage`, unsure}, {`"a" == "a"`, unsure}, {`python_version > "not a version"`, unsure},
		{strings.Repeat("(", 1000) + `os_name == "posix"` + strings.Repeat(")", 1000), unsure},
	} {
		if got := e.eval(c.marker); got != c.want {
			t.Errorf("%s: %d, want %d", cutText(c.marker, 80), got, c.want)
		}
	}
	if got := (environment{}).eval(`python_version >= "3"`); got != unsure {
		t.Errorf("an unknown version is %d", got)
	}
}

func TestRequirements(t *testing.T) {
	for _, c := range []struct{ text, name, exact, marker string }{
		{"torch==2.9.1", "torch", "2.9.1", ""},
		{"torch (==2.9.1)", "torch", "2.9.1", ""},
		{"Triton_Kernels == 1.0 ; python_version >= '3'", "triton-kernels", "1.0", "python_version >= '3'"},
		{"torch[cuda,x] >=2,==2.9.1", "torch", "2.9.1", ""},
		{"torch===2.9.1", "torch", "2.9.1", ""},
		{"torch==2.9.*", "torch", "", ""},
		{"torch>=2", "torch", "", ""},
		{"torch @ https://example.com/t==1.whl", "torch", "", ""},
		{"torch", "torch", "", ""},
	} {
		r, err := parseRequirement(c.text)
		if err != nil || r.name != c.name || r.exact() != c.exact || r.marker != c.marker {
			t.Errorf("%s: %+v, exact %q, %v", c.text, r, r.exact(), err)
		}
	}
	for _, bad := range []string{"", ";", "==1", "torch[cuda"} {
		if r, err := parseRequirement(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, r)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add("Name: torch\nVersion: 1\nRequires-Dist: triton==1; extra == 'x'\n folded\n\nbody")
	f.Add("Requires-Dist: a (==1) ; ((os_name == 'x'))")
	f.Fuzz(func(t *testing.T, text string) {
		_, _, requires := parseMetadata([]byte(text))
		for _, r := range requires {
			if q, err := parseRequirement(r); err == nil {
				if got := (environment{python: "3.12"}).eval(q.marker); got != isTrue && got != isFalse && got != unsure {
					t.Errorf("%q: %d", q.marker, got)
				}
				fits("1", q.exact())
			}
		}
	})
}

func FuzzScript(f *testing.F) {
	f.Add("X=1\nexec vllm serve \"$X\" ${X//1/2} $((1+1)) \"${A[@]}\"")
	profiles := []*profile.Profile{engine(f)}
	f.Fuzz(func(t *testing.T, text string) {
		c := &command{env: map[string]string{"A": "b"}}
		c.search(&newHost(t).sys, profiles, []byte(text), "start", []string{"a", "b c"})
		if len(c.argv) > maxWords {
			t.Errorf("%d words", len(c.argv))
		}
	})
}
