package preflight

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/shell"
)

// Unit is a systemd unit as it will be started. What is not known is zero.
type Unit struct {
	Name string
	// Loaded is false when systemd knows no such unit.
	Loaded                bool
	ActiveState, SubState string
	MainPID               int
	ControlGroup          string
	// Argv is its main command, specifiers expanded, variables not.
	Argv []string
	// Environment holds NAME=VALUE; EnvironmentFiles are read by this package.
	Environment      []string
	EnvironmentFiles []EnvironmentFile
	User             string
	WorkingDirectory string
	// Files are the unit's file and its drop-ins.
	Files []string
	// OpenFiles is the hard limit (LimitNOFILE=); nil when not known.
	OpenFiles *uint64
	// MemoryMax is in bytes; nil when there is no limit or it is not known.
	MemoryMax *uint64
	// Limited says in words why its view of the host may differ from ours
	// (PrivateNetwork=, RootDirectory=); "" when it does not.
	Limited string
	// OwnFiles says in words why its files may differ from ours (RootDirectory=,
	// BindPaths=); "" when they do not.
	OwnFiles string
	// Split is true where Argv was split at spaces: systemctl does not tell where
	// arguments end.
	Split bool
}

// EnvironmentFile is an EnvironmentFile= of a unit.
type EnvironmentFile struct {
	Path string
	// Optional files may be absent.
	Optional bool
}

// UnitFromProperties reads the D-Bus properties of a service.
func UnitFromProperties(name string, props map[string]any) *Unit {
	text := func(key string) string { s, _ := props[key].(string); return s }
	u := &Unit{
		Name: name, Loaded: text("LoadState") != "" && text("LoadState") != "not-found",
		ActiveState: text("ActiveState"), SubState: text("SubState"), ControlGroup: text("ControlGroup"),
		User: text("User"), WorkingDirectory: strings.TrimPrefix(strings.TrimPrefix(text("WorkingDirectory"), "!"), "-"),
	}
	if pid, ok := props["MainPID"].(uint32); ok {
		u.MainPID = int(pid)
	}
	if commands, _ := props["ExecStart"].([][]any); len(commands) > 0 && len(commands[0]) > 1 {
		u.Argv, _ = commands[0][1].([]string)
	}
	u.Environment, _ = props["Environment"].([]string)
	files, _ := props["EnvironmentFiles"].([][]any)
	for _, f := range files {
		if len(f) == 2 {
			path, _ := f[0].(string)
			optional, _ := f[1].(bool)
			u.EnvironmentFiles = append(u.EnvironmentFiles, EnvironmentFile{path, optional})
		}
	}
	if f := text("FragmentPath"); f != "" {
		u.Files = append(u.Files, f)
	}
	dropIns, _ := props["DropInPaths"].([]string)
	u.Files = append(u.Files, dropIns...)
	u.OpenFiles = limit(props["LimitNOFILE"])
	u.MemoryMax = limit(props["MemoryMax"])
	private, _ := props["PrivateNetwork"].(bool)
	u.limit(private, text("RootDirectory"), text("RootImage"), text("NetworkNamespacePath"))
	u.ownFiles(func(key string) bool {
		switch v := props[key].(type) {
		case string:
			return v != "" && v != "/"
		case [][]any:
			return len(v) > 0
		}
		return false
	})
	return u
}

// mounts are the properties that give a unit files of its own.
func mounts() []string {
	return []string{"RootDirectory", "RootImage", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "MountImages", "ExtensionImages"}
}

// ownFiles notes the first property that is set.
func (u *Unit) ownFiles(set func(key string) bool) {
	if i := slices.IndexFunc(mounts(), set); i >= 0 {
		u.OwnFiles = "the unit sees files of its own (" + mounts()[i] + "=)"
	}
}

// limit reads a number of which the biggest one means that there is none.
func limit(v any) *uint64 {
	n, ok := v.(uint64)
	if !ok || n == 1<<64-1 {
		return nil
	}
	return &n
}

func (u *Unit) limit(private bool, dir, image, namespace string) {
	switch {
	case dir != "" && dir != "/":
		u.Limited = "it runs with RootDirectory=" + dir
	case image != "":
		u.Limited = "it runs with RootImage=" + image
	case private:
		u.Limited = "it runs with PrivateNetwork=yes"
	case namespace != "":
		u.Limited = "it runs in the network namespace " + namespace
	}
}

// ShowProperties are what `systemctl show` must be asked for.
func ShowProperties() string {
	return "LoadState,ActiveState,SubState,ControlGroup,User,WorkingDirectory,MainPID,ExecStart,Environment,EnvironmentFiles," +
		"FragmentPath,DropInPaths,LimitNOFILE,MemoryMax,PrivateNetwork,NetworkNamespacePath," + strings.Join(mounts(), ",")
}

// UnitFromShow reads what `systemctl show` prints:
//
//	ExecStart={ path=/opt/x ; argv[]=/opt/x serve m ; ignore_errors=no ; start_time=[n/a] ; ... }
//	EnvironmentFiles=/etc/llm.env (ignore_errors=yes)
//
// Arguments with spaces in them can't be told from several.
func UnitFromShow(name, text string) *Unit {
	u := &Unit{Name: name, Split: true}
	props := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok {
			continue
		}
		switch key {
		case "ExecStart":
			if _, rest, ok := strings.Cut(value, "argv[]="); ok && u.Argv == nil {
				argv, _, _ := strings.Cut(rest, " ; ")
				u.Argv = strings.Fields(argv)
			}
		case "EnvironmentFiles":
			path, note, _ := strings.Cut(value, " (")
			u.EnvironmentFiles = append(u.EnvironmentFiles, EnvironmentFile{path, strings.Contains(note, "ignore_errors=yes")})
		default:
			props[key] = value
		}
	}
	u.Loaded = props["LoadState"] != "" && props["LoadState"] != "not-found"
	u.ActiveState, u.SubState, u.ControlGroup, u.User = props["ActiveState"], props["SubState"], props["ControlGroup"], props["User"]
	u.WorkingDirectory = strings.TrimPrefix(strings.TrimPrefix(props["WorkingDirectory"], "!"), "-")
	u.MainPID, _ = number(props["MainPID"])
	u.Environment = assignments(props["Environment"])
	u.Files = append(strings.Fields(props["FragmentPath"]), strings.Fields(props["DropInPaths"])...)
	for key, to := range map[string]**uint64{"LimitNOFILE": &u.OpenFiles, "MemoryMax": &u.MemoryMax} {
		if n, ok := number(props[key]); ok {
			v := uint64(n)
			*to = &v
		}
	}
	u.limit(props["PrivateNetwork"] == "yes", props["RootDirectory"], props["RootImage"], props["NetworkNamespacePath"])
	u.ownFiles(func(key string) bool { return props[key] != "" && props[key] != "/" })
	return u
}

// assignments reads the value of Environment= as systemd prints it: words with
// spaces in them are quoted as in a shell.
func assignments(line string) []string {
	words, err := shell.Fields(line, func(string) string { return "" })
	if err != nil {
		return strings.Fields(line)
	}
	return words
}

// parseEnvironment reads an EnvironmentFile (systemd.exec(5)): a NAME=VALUE a
// line, # and ; begin comments, values may be quoted and go on behind a
// backslash.
func parseEnvironment(text string) []string {
	text = strings.ReplaceAll(text, "\\\n", "")
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		line = strings.Trim(line, "\x00")
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if n := len(line); n > 1 && line[0] == '"' && line[n-1] == '"' {
			line = line[1 : n-1]
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(strings.TrimPrefix(name, "export ")); !ok || name == "" {
			continue
		}
		out = append(out, name+"="+unquote(strings.TrimSpace(value)))
	}
	return out
}

func unquote(v string) string {
	if n := len(v); n > 1 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
		single := v[0] == '\''
		v = v[1 : n-1]
		if !single {
			v = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\$`, `$`, "\\`", "`").Replace(v)
		}
	}
	return v
}

// environment joins the unit's variables, as systemd does: a file wins over
// Environment=. problems name what could not be read.
func (u *Unit) environment(s *System) (env map[string]string, problems []string) {
	env = map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	put := func(list []string) {
		for _, v := range list {
			if name, value, ok := strings.Cut(v, "="); ok {
				env[name] = value
			}
		}
	}
	put(u.Environment)
	for _, f := range u.EnvironmentFiles {
		b, err := s.read(f.Path, 1<<20)
		switch {
		case err == nil:
			put(parseEnvironment(string(b)))
		case f.Optional && why(err) == "it does not exist":
		default:
			problems = append(problems, fmt.Sprintf("EnvironmentFile=%s: %s", f.Path, why(err)))
		}
	}
	return env, problems
}
