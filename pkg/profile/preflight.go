package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Preflight is what is known of an engine before it starts: how its command
// line is read, and what it needs of its host.
type Preflight struct {
	// Package is the Python distribution that holds the engine, whose version is
	// the engine's; "" when it is none.
	Package string
	// GPUs says that the engine can't start without a GPU.
	GPUs bool
	// OtherBuilds are beginnings of the local part of the package's version (cpu in
	// 1.0+cpu) of builds that use none of the GPUs that are looked at.
	OtherBuilds []string
	// MemoryOverhead is what the engine's own processes take of a GPU before it
	// looks at what is free, in bytes; 0 when not known.
	MemoryOverhead uint64
	// Settings are what a command line, a configuration file or the environment
	// can set, by the names of Settings.
	Settings map[string]Setting
	// RemoteLaunchers are values of SettingLauncher by which workers may run on
	// other hosts, so that this host's GPUs tell nothing of their number.
	RemoteLaunchers []string
	// VisibleGPUs are the environment variables that choose GPUs; the first one
	// that is set counts.
	VisibleGPUs []string
	// SharedMemory is what /dev/shm must hold where several processes share a
	// model; nil when not known.
	SharedMemory *SharedMemory
	// OpenFiles is the limit of open files that the engine asks for; 0 when it
	// asks for none.
	OpenFiles uint64
	// Directories are written to by a start.
	Directories []Directory
	// ModelCache is where weights that were downloaded lie; nil when not known.
	ModelCache *ModelCache
	// Equal are groups of packages that must have one version.
	Equal []EqualPackages
	// Pins are packages whose exact requirements on each other count.
	Pins []string
}

// The names of settings that a profile may tell how to read.
const (
	SettingModel            = "model"
	SettingConfig           = "config"
	SettingHost             = "host"
	SettingPort             = "port"
	SettingMemoryShare      = "memory_share"
	SettingTensorParallel   = "tensor_parallel"
	SettingPipelineParallel = "pipeline_parallel"
	SettingDataParallel     = "data_parallel"
	// SettingDataParallelLocal is how many of the data-parallel parts run on this
	// host.
	SettingDataParallelLocal = "data_parallel_local"
	// SettingDataParallelRank is set where this start is only one of the
	// data-parallel parts.
	SettingDataParallelRank = "data_parallel_rank"
	// SettingNodes is on how many hosts the model is spread.
	SettingNodes       = "nodes"
	SettingDownloadDir = "download_dir"
	// SettingOffload is set where part of the weights stays in the host's memory.
	SettingOffload = "offload"
	// SettingFixedCache is set where the cache's size is told, so that the share of
	// memory bounds no weights.
	SettingFixedCache = "fixed_cache"
	// SettingOtherHub is set where models come from a hub whose cache is not
	// looked at.
	SettingOtherHub = "other_hub"
	// SettingNoPort is set where the engine opens no port.
	SettingNoPort = "no_port"
	// SettingOffline is set where nothing may be downloaded.
	SettingOffline = "offline"
	// SettingSocket is set where the engine serves on a Unix socket instead of a
	// port.
	SettingSocket = "socket"
	// SettingLauncher names what starts the workers, where it is told.
	SettingLauncher = "launcher"
	// SettingDataParallelLauncher names what starts the data-parallel parts, where
	// it is told.
	SettingDataParallelLauncher = "data_parallel_launcher"
)

func knownSettings() []string {
	return []string{
		SettingModel, SettingConfig, SettingHost, SettingPort, SettingMemoryShare, SettingTensorParallel,
		SettingPipelineParallel, SettingDataParallel, SettingDataParallelLocal, SettingDataParallelRank,
		SettingNodes, SettingDownloadDir, SettingFixedCache, SettingOtherHub, SettingNoPort, SettingOffload, SettingOffline, SettingSocket, SettingLauncher, SettingDataParallelLauncher,
	}
}

// Setting is where one setting can be read. A flag wins over the environment.
type Setting struct {
	// Flags begin with a dash; - and _ within them are the same. A long flag
	// without its dashes is also the key in the engine's configuration file.
	Flags []string
	// First says that the first argument, if it is no flag, is the value too.
	First bool
	// Variables are environment variables, the first that is set counts.
	Variables []string
	// Defaults are what holds otherwise; nil when not known.
	Defaults []Default
}

// Default is a setting's value where nobody sets it.
type Default struct {
	Value string `yaml:"value"`
	// Since and Before are engine versions, the first inclusive, the second not;
	// "" is unbounded.
	Since  string `yaml:"since"`
	Before string `yaml:"before"`
}

// SharedMemory are sizes of /dev/shm, in bytes.
type SharedMemory struct {
	// Least is what a start fails without, Good what is usually enough.
	Least, Good uint64
	// Since is the first version of the engine that insists on Least; "" is each.
	Since string
}

// Directory is a place that a start writes to.
type Directory struct {
	Name string
	// Paths are tried in order: the first whose ${VARIABLE}s and {setting}s are
	// all set counts. ~ at the beginning is the user's home.
	Paths []string
	// Room is how much a first start may write there, in bytes; 0 when not known.
	Room uint64
}

// ModelCache is how downloaded models lie in a directory.
type ModelCache struct {
	// Directory is one of the Directories' names.
	Directory string
	// Folder is a model's folder, with {model} for its name, in which Slash
	// stands for /.
	Folder, Slash string
	// Snapshots holds the versions of a model, each a folder; "" when the files
	// lie in Folder itself.
	Snapshots string
	// Files are globs of the weights' files within a version or a model's own
	// folder; the first that has any counts.
	Files []string
}

// EqualPackages are packages that must have one version where they are
// installed.
type EqualPackages struct {
	Packages []string `yaml:"packages"`
	// Exact says that a local suffix (+cu129) counts too.
	Exact bool `yaml:"exact"`
	// Unless is an environment variable that turns the engine's own comparison
	// off; "" when there is none.
	Unless string `yaml:"unless"`
	// Reason says what happens otherwise, for people.
	Reason string `yaml:"reason"`
}

type preflightDoc struct {
	Package        string                `yaml:"package"`
	GPUs           *bool                 `yaml:"gpus"`
	OtherBuilds    []string              `yaml:"other_builds"`
	MemoryOverhead string                `yaml:"memory_overhead"`
	Settings       map[string]settingDoc `yaml:"settings"`
	Remote         []string              `yaml:"remote_launchers"`
	VisibleGPUs    []string              `yaml:"visible_gpus"`
	SharedMemory   *sharedMemoryDoc      `yaml:"shared_memory"`
	OpenFiles      uint64                `yaml:"open_files"`
	Directories    []directoryDoc        `yaml:"directories"`
	ModelCache     *modelCacheDoc        `yaml:"model_cache"`
	Equal          []EqualPackages       `yaml:"equal"`
	Pins           []string              `yaml:"pins"`
}

type settingDoc struct {
	Flags     []string  `yaml:"flags"`
	First     bool      `yaml:"first"`
	Variables []string  `yaml:"variables"`
	Defaults  []Default `yaml:"defaults"`
}

type sharedMemoryDoc struct {
	Least string `yaml:"least"`
	Good  string `yaml:"good"`
	Since string `yaml:"since"`
}

type directoryDoc struct {
	Name  string   `yaml:"name"`
	Paths []string `yaml:"paths"`
	Room  string   `yaml:"room"`
}

type modelCacheDoc struct {
	Directory string   `yaml:"directory"`
	Folder    string   `yaml:"folder"`
	Slash     string   `yaml:"slash"`
	Snapshots string   `yaml:"snapshots"`
	Files     []string `yaml:"files"`
}

// setPreflight reads the preflight section. What it says takes the place of
// what the base says, setting by setting.
func (p *Profile) setPreflight(doc *document) error {
	d := doc.Preflight
	if d == nil {
		return nil
	}
	out := &Preflight{Settings: map[string]Setting{}}
	if p.Preflight != nil {
		*out = *p.Preflight
		out.Settings = maps.Clone(p.Preflight.Settings)
	}
	if err := d.apply(out); err != nil {
		return fmt.Errorf("preflight: %w", err)
	}
	p.Preflight = out
	return nil
}

func (d *preflightDoc) apply(p *Preflight) error {
	p.Package = cmp.Or(d.Package, p.Package)
	if d.GPUs != nil {
		p.GPUs = *d.GPUs
	}
	p.OpenFiles = cmp.Or(d.OpenFiles, p.OpenFiles)
	for to, from := range map[*[]string][]string{
		&p.VisibleGPUs: d.VisibleGPUs, &p.Pins: d.Pins, &p.RemoteLaunchers: d.Remote, &p.OtherBuilds: d.OtherBuilds,
	} {
		if from != nil {
			*to = from
		}
	}
	if err := d.sizes(p); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Settings)) {
		if err := d.Settings[name].check(name); err != nil {
			return err
		}
		p.Settings[name] = Setting(d.Settings[name])
	}
	if err := d.places(p); err != nil {
		return err
	}
	for _, e := range d.Equal {
		if len(e.Packages) < 2 {
			return fmt.Errorf("equal: a group needs two packages or more; it has %q", e.Packages)
		}
	}
	if d.Equal != nil {
		p.Equal = d.Equal
	}
	return nil
}

func (d *preflightDoc) sizes(p *Preflight) error {
	if d.MemoryOverhead != "" {
		n, err := parseSize(d.MemoryOverhead)
		if err != nil {
			return fmt.Errorf("memory_overhead: %w", err)
		}
		p.MemoryOverhead = n
	}
	if s := d.SharedMemory; s != nil {
		least, err := parseSize(s.Least)
		if err != nil {
			return fmt.Errorf("shared_memory: least: %w", err)
		}
		good, err := parseSize(s.Good)
		if err != nil {
			return fmt.Errorf("shared_memory: good: %w", err)
		}
		p.SharedMemory = &SharedMemory{Least: least, Good: max(least, good), Since: s.Since}
	}
	return nil
}

func (s settingDoc) check(name string) error {
	if !slices.Contains(knownSettings(), name) {
		return fmt.Errorf("settings: unknown setting %q; known are %s", name, quoted(knownSettings()))
	}
	if len(s.Flags)+len(s.Variables)+len(s.Defaults) == 0 && !s.First {
		return fmt.Errorf("settings: %s can be read nowhere; give it flags, variables or defaults", name)
	}
	for _, f := range s.Flags {
		if len(strings.TrimLeft(f, "-")) == len(f) || strings.ContainsAny(f, " =") {
			return fmt.Errorf("settings: %s: flag %q; write it as on the command line, such as --port", name, f)
		}
	}
	for _, d := range s.Defaults {
		if d.Value == "" {
			return fmt.Errorf("settings: %s: a default without a value; remove it or give one", name)
		}
	}
	return nil
}

// places reads directories and the cache of models.
func (d *preflightDoc) places(p *Preflight) error {
	var dirs []Directory
	for _, doc := range d.Directories {
		if doc.Name == "" || len(doc.Paths) == 0 {
			return fmt.Errorf("directories: each needs a name and paths; one has name %q and %d paths", doc.Name, len(doc.Paths))
		}
		dir := Directory{Name: doc.Name, Paths: doc.Paths}
		if doc.Room != "" {
			n, err := parseSize(doc.Room)
			if err != nil {
				return fmt.Errorf("directories: %s: room: %w", doc.Name, err)
			}
			dir.Room = n
		}
		dirs = append(dirs, dir)
	}
	if dirs != nil {
		p.Directories = dirs
	}
	if c := d.ModelCache; c != nil {
		if !strings.Contains(c.Folder, "{model}") || len(c.Files) == 0 {
			return fmt.Errorf("model_cache: needs a folder with {model} and files; it has %q and %d files", c.Folder, len(c.Files))
		}
		cache := ModelCache(*c)
		p.ModelCache = &cache
	}
	if c := p.ModelCache; c != nil && !slices.ContainsFunc(p.Directories, func(d Directory) bool { return d.Name == c.Directory }) {
		return fmt.Errorf("model_cache: no directory is named %q; name one of directories", c.Directory)
	}
	return nil
}

// parseSize reads a size such as 512MiB, in bytes.
func parseSize(text string) (uint64, error) {
	for _, unit := range [...]struct {
		suffix string
		shift  uint
	}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}} {
		number, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err == nil && n < 1<<(63-unit.shift) {
			return n << unit.shift, nil
		}
	}
	return 0, fmt.Errorf("%q is no size; write a whole number with KiB, MiB, GiB or TiB, such as 512MiB", text)
}
