package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/profile"
)

// command is the engine's command line, as found.
type command struct {
	// profile is nil when no profile knows the command.
	profile *profile.Profile
	// argv is the whole command, args what comes behind the engine's name.
	argv, args []string
	env        map[string]string
	dir, home  string
	// script is the shell script that the command was found in; "" for none.
	script string
	// container is the program that runs it in a container; nil when it runs on
	// the host itself.
	container *container
	// problems are what could not be read, for people.
	problems []string
	// doubt says why the start's own command may be another one, so that nothing
	// that fails is certain; "" when it is not.
	doubt string
	// file are settings that the engine's configuration file makes.
	file map[string]string
	// version is the engine's, from its package; "" when not known.
	version string
}

// find makes out the engine's command of a unit's, or of argv.
func find(s *System, profiles []*profile.Profile, u *Unit, argv []string, environ map[string]string, dir string) *command {
	c := &command{env: maps.Clone(environ), argv: argv, dir: dir}
	owner := ""
	if u != nil {
		var unread []string
		c.env, unread = u.environment(s)
		for _, p := range unread {
			c.uncertain(p)
		}
		c.dir, owner = u.WorkingDirectory, u.User
		if u.Split {
			c.problems = append(c.problems, "systemctl does not tell where arguments end: those with spaces in them may be misread")
		}
		if owner == "" {
			owner = "root"
		}
		c.argv = expandArgv(u.Argv, c.env)
	}
	home, err := s.Home(owner)
	if err != nil {
		c.problems = append(c.problems, fmt.Sprintf("the home of user %s is not known: %v", owner, err))
	}
	c.home = home
	if h := c.env["HOME"]; h != "" {
		c.home = h
	} else if home != "" {
		c.env["HOME"] = home
	}
	if c.dir == "~" {
		c.dir = c.home
	}
	if c.dir == "" {
		c.dir = "/"
	}
	if !c.detect(profiles) {
		c.fromScript(s, profiles)
	}
	c.container = newContainer(c.argv)
	if k := c.container; k != nil {
		for _, name := range k.passed {
			if v, ok := c.env[name]; ok {
				k.env[name] = v
			}
		}
		if k.envFile {
			c.uncertain("the variables of --env-file are not looked at")
		}
		// What the host's unit sets is not what the container sees.
		c.env = k.env
	}
	c.takeEnv()
	return c
}

// uncertain tells of something that may change the command.
func (c *command) uncertain(problem string) {
	c.problems = append(c.problems, problem)
	c.doubt = cmp.Or(c.doubt, problem)
}

// detect finds the first word with which the command line is an engine's.
func (c *command) detect(profiles []*profile.Profile) bool {
	line := ""
	for i, w := range c.argv {
		// A word with spaces in it (the text behind sh -c) is a word all the same.
		line = strings.TrimPrefix(line+" "+strings.ReplaceAll(w, " ", "\x00"), " ")
		for _, p := range profiles {
			if p.DetectCommand(line) {
				c.profile, c.args = p, c.argv[i+1:]
				return true
			}
		}
	}
	return false
}

// takeEnv takes the variables that env(1) sets in front of the engine.
func (c *command) takeEnv() {
	if len(c.argv) == 0 || path.Base(c.argv[0]) != "env" {
		return
	}
	for _, w := range c.argv[1:] {
		name, value, ok := strings.Cut(w, "=")
		if !ok || strings.HasPrefix(w, "-") {
			return
		}
		c.env[name] = value
	}
}

// expandArgv replaces variables as systemd does (systemd.service(5), Command
// lines): ${X} within a word, and a word that is $X by several words.
func expandArgv(argv []string, env map[string]string) []string {
	var out []string
	for i, w := range argv {
		if i > 0 && strings.HasPrefix(w, "$") && isName(w[1:]) {
			out = append(out, strings.Fields(env[w[1:]])...)
			continue
		}
		out = append(out, expandBraces(w, env))
	}
	return out
}

func expandBraces(w string, env map[string]string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(w, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		switch name, after, closed := strings.Cut(strings.TrimPrefix(rest, "{"), "}"); {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			w = rest[1:]
		case strings.HasPrefix(rest, "{") && closed && isName(name):
			b.WriteString(env[name])
			w = after
		default:
			b.WriteByte('$')
			w = rest
		}
	}
}

// isName says that s is a variable's name.
func isName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// abs is a path of the command's, from its working directory.
func (c *command) abs(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok && c.home != "" {
		return filepath.Join(c.home, rest)
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(c.dir, p)
	}
	return p
}

// container is a container runtime's command line.
type container struct {
	runtime string
	env     map[string]string
	// passed are variables that it takes from its caller, and envFile is true where
	// a file sets some.
	passed  []string
	envFile bool
	// ports maps ports of the container to the host's; nil with the host's network.
	ports map[string]string
	// addresses are the host's addresses of ports; a port without one has all.
	addresses map[string]string
	// gpus is what chooses GPUs ("all", "device=0,1"); "" when nothing does.
	gpus string
	// devices are GPUs of the Container Device Interface: numbers, UUIDs or all.
	devices []string
	// ipc is whose /dev/shm it has; "" is its own.
	ipc     string
	shmSize string
	hostNet bool
}

// chosen tells which of the host's GPUs the container gets, as NAME=LIST; ""
// where it gets all, or as many as it is told.
func (c *container) chosen() string {
	if _, ids, ok := strings.Cut(c.gpus, "device="); ok {
		return "--gpus device=" + strings.Trim(ids, `"'`)
	}
	if len(c.devices) > 0 && !slices.Contains(c.devices, "all") {
		return "--device gpu=" + strings.Join(c.devices, ",")
	}
	const variable = "NVIDIA_VISIBLE_DEVICES"
	if v := c.env[variable]; c.gpus == "" && !slices.Contains([]string{"", "all", "none", "void"}, v) {
		return variable + "=" + v
	}
	return ""
}

// newContainer reads `docker run ...` and its likes; nil for anything else.
func newContainer(argv []string) *container {
	at := slices.IndexFunc(argv, func(w string) bool {
		return slices.Contains([]string{"docker", "podman", "nerdctl"}, path.Base(w))
	})
	if at < 0 || !slices.Contains(argv[at+1:], "run") {
		return nil
	}
	c := &container{runtime: path.Base(argv[at]), env: map[string]string{}, ports: map[string]string{}, addresses: map[string]string{}}
	for i := at + 1; i < len(argv); i++ {
		flag, value, ok := strings.Cut(argv[i], "=")
		if !ok && i+1 < len(argv) {
			value = argv[i+1]
		}
		c.option(flag, value)
	}
	return c
}

func (c *container) option(flag, value string) {
	switch flag {
	case "-e", "--env":
		if name, v, ok := strings.Cut(value, "="); ok {
			c.env[name] = v
		} else {
			c.passed = append(c.passed, value)
		}
	case "--env-file":
		c.envFile = true
	case "--device":
		if _, id, ok := strings.Cut(value, "nvidia.com/gpu="); ok {
			c.devices = append(c.devices, id)
		}
	case "-p", "--publish":
		parts := strings.Split(value, ":")
		if n := len(parts); n > 1 {
			port, _, _ := strings.Cut(parts[n-1], "/")
			c.ports[port] = parts[n-2]
			c.addresses[port] = strings.Trim(strings.Join(parts[:n-2], ":"), "[]")
		}
	case "--network", "--net":
		c.hostNet = value == "host"
	case "--ipc":
		c.ipc = value
	case "--shm-size":
		c.shmSize = value
	case "--gpus":
		c.gpus = strings.Trim(value, `"'`)
	}
}
