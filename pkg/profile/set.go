package profile

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
)

//go:embed engines/*.yaml catalogue/*.yaml
var builtin embed.FS

// Set is the profiles of several engines, and the catalogue of failures that
// they share. It is immutable.
type Set struct {
	profiles map[string]*Profile
	// shared is the built-in catalogue.
	shared *document
}

// Builtin returns the embedded profiles.
func Builtin() (*Set, error) {
	shared, err := builtinCatalogue()
	if err != nil {
		return nil, err
	}
	fsys, err := fs.Sub(builtin, "engines")
	if err != nil {
		return nil, err
	}
	return (&Set{shared: shared}).load(fsys, false)
}

// builtinCatalogue joins the embedded files, in the order of their names.
func builtinCatalogue() (*document, error) {
	shared := &document{Classes: map[string]classDoc{}}
	files, err := fs.Glob(builtin, "catalogue/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		data, err := builtin.ReadFile(name)
		if err != nil {
			return nil, err
		}
		doc, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		maps.Copy(shared.Classes, doc.Classes)
		shared.Rules = append(shared.Rules, doc.Rules...)
	}
	return shared, nil
}

// Extend returns a new set with the files *.yaml and *.yml at the root of fsys,
// in the order of their names. A file with a new engine adds it, one with a
// known engine replaces it. A file with "extends: ENGINE" adds to that one: its
// rules come first, a rule with a known id replaces the old one, and what it
// says of detection, steps, health and port goes before the old. A catalogue
// (schema startupd-catalogue/v1) adds classes and rules to every engine so.
//
// A file with any fault is refused, with its name, line, rule and what to do;
// then the set is nil. Its rules are tested by their examples.
func (s *Set) Extend(fsys fs.FS) (*Set, error) { return s.load(fsys, true) }

func (s *Set) load(fsys fs.FS, test bool) (*Set, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("profiles: cannot list the directory: %w", err)
	}
	out := &Set{profiles: maps.Clone(s.profiles), shared: s.shared}
	if out.profiles == nil {
		out.profiles = map[string]*Profile{}
	}
	for _, e := range entries {
		if ext := path.Ext(e.Name()); e.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		data, err := readCapped(fsys, e.Name())
		if err == nil {
			err = out.add(e.Name(), data, test)
		}
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", e.Name(), err)
		}
	}
	return out, nil
}

// maxFile bounds a profile: a file of this size is no profile.
const maxFile = 4 << 20

func readCapped(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is no regular file; put a YAML file there, or rename it")
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("is %d bytes long; a profile has at most %d", info.Size(), maxFile)
	}
	return fs.ReadFile(fsys, name)
}

func (s *Set) add(file string, data []byte, test bool) error {
	doc, err := decode(data)
	if err != nil {
		return err
	}
	if doc.Schema == catalogueSchema {
		for _, engine := range slices.Sorted(maps.Keys(s.profiles)) {
			part := *doc
			part.Engine, part.Extends = engine, engine
			if err := s.put(file, &part, s.profiles[engine], test); err != nil {
				return err
			}
		}
		return nil
	}
	var base *Profile
	if doc.Extends != "" {
		if base = s.profiles[doc.Extends]; base == nil {
			return fmt.Errorf("extends unknown engine %q; known are %s", doc.Extends, quoted(slices.Sorted(maps.Keys(s.profiles))))
		}
	}
	return s.put(file, doc, base, test)
}

// put builds a profile and takes it in.
func (s *Set) put(file string, doc *document, base *Profile, test bool) error {
	p, own, err := build(file, doc, base, s.shared)
	if err != nil {
		return err
	}
	if test {
		if err := p.selfTest(own); err != nil {
			return err
		}
	}
	s.profiles[p.Engine] = p
	return nil
}

// Profile returns the profile of an engine; nil if there is none.
func (s *Set) Profile(engine string) *Profile { return s.profiles[engine] }

// Profiles returns all profiles, sorted by engine.
func (s *Set) Profiles() []*Profile {
	out := make([]*Profile, 0, len(s.profiles))
	for _, engine := range slices.Sorted(maps.Keys(s.profiles)) {
		out = append(out, s.profiles[engine])
	}
	return out
}
