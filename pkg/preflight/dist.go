package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// maxMetadata bounds METADATA, whose description can be long; maxRequires the
	// requirements in it, and maxEntries the packages of a folder.
	maxMetadata = 4 << 20
	maxRequires = 2000
	maxEntries  = 20000
)

// dist is one installed distribution.
type dist struct {
	name, version string
	// folder is the .dist-info it is told by.
	folder   string
	requires []string
}

// installed are the distributions of an environment by their normalised name.
type installed struct {
	dists map[string]dist
	// doubles are names that one folder of packages has twice.
	doubles map[string][]string
	// broken are folders that could not be read.
	broken []string
}

var separators = regexp.MustCompile(`[-_.]+`)

// normal is a name as PEP 503 compares it.
func normal(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// scan reads the metadata of the wanted packages. The first folder that has a
// package counts, as for import.
func scan(s *System, sites []string, wanted map[string]bool) (*installed, error) {
	in := &installed{dists: map[string]dist{}, doubles: map[string][]string{}}
	read := 0
	for _, site := range sites {
		err := in.site(s, site, wanted)
		switch {
		case err == nil:
			read++
		case errors.Is(err, fs.ErrNotExist):
		default:
			return nil, fmt.Errorf("%s: %s", site, why(err))
		}
	}
	if read == 0 {
		return nil, errors.New("none of its folders of packages is there")
	}
	return in, nil
}

func (in *installed) site(s *System, site string, wanted map[string]bool) error {
	d, err := os.Open(s.path(site))
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxEntries)
	if err != nil && len(names) == 0 {
		return nil // an empty folder
	}
	slices.Sort(names)
	found := map[string][]dist{}
	for _, entry := range names {
		stem, file := stemOf(entry)
		name, version, _ := strings.Cut(stem, "-")
		if key := normal(name); stem != "" && wanted[key] {
			found[key] = append(found[key], in.open(s, dist{name: key, version: version, folder: filepath.Join(site, entry)}, file))
		}
	}
	for key, list := range found {
		if _, ok := in.dists[key]; ok {
			continue // an earlier folder has it
		}
		in.dists[key] = list[len(list)-1]
		for _, d := range list {
			if len(list) > 1 {
				in.doubles[key] = append(in.doubles[key], d.version)
			}
		}
	}
	return nil
}

// stemOf is the NAME-VERSION of a folder of metadata, and the file in it; "" for
// any other entry.
func stemOf(entry string) (stem, file string) {
	if stem, ok := strings.CutSuffix(entry, ".dist-info"); ok {
		return stem, "METADATA"
	}
	if stem, ok := strings.CutSuffix(entry, ".egg-info"); ok {
		return stem, "PKG-INFO"
	}
	return "", ""
}

// open reads a distribution's metadata. The folder's name tells the version
// where that can't be read.
func (in *installed) open(s *System, d dist, file string) dist {
	b, err := s.head(filepath.Join(d.folder, file), maxMetadata)
	if err != nil {
		if s.isFile(d.folder) { // an .egg-info can be a file
			b, err = s.head(d.folder, maxMetadata)
		}
		if err != nil {
			in.broken = append(in.broken, fmt.Sprintf("%s: %s", d.folder, why(err)))
			return d
		}
	}
	name, version, requires := parseMetadata(b)
	if name == "" || version == "" {
		in.broken = append(in.broken, d.folder+": its metadata has no name or version")
		return d
	}
	if normal(name) != d.name {
		in.broken = append(in.broken, fmt.Sprintf("%s: its metadata is of %s", d.folder, cutText(name, 80)))
		return d
	}
	d.version, d.requires = version, requires
	return d
}

// parseMetadata reads the header of METADATA, which is in the form of an e-mail
// (the core metadata specification): a field a line, continued by lines that
// begin with a space, up to an empty line.
//
//	Metadata-Version: 2.1
//	Name: torch
//	Version: 2.9.1
//	Requires-Dist: triton==3.5.1; platform_system == "Linux"
func parseMetadata(b []byte) (name, version string, requires []string) {
	var fields []string
	for line := range bytes.Lines(b) {
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		if (text[0] == ' ' || text[0] == '\t') && len(fields) > 0 {
			fields[len(fields)-1] += " " + strings.TrimSpace(text)
			continue
		}
		fields = append(fields, text)
		if len(fields) > 4*maxRequires {
			break
		}
	}
	for _, f := range fields {
		key, value, ok := strings.Cut(f, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(key) {
		case "name":
			name = value
		case "version":
			version = value
		case "requires-dist":
			if len(requires) < maxRequires {
				requires = append(requires, value)
			}
		}
	}
	return name, version, requires
}
