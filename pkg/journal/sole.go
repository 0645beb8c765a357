package journal

import (
	"fmt"
	"sort"
	"strings"
)

// soleUnit adopts the unit of an export file's first own line or manager's
// message, where the caller named none.
type soleUnit struct {
	name   string // of the target; "" takes the unit's, or path if there is none
	path   string
	unit   string
	others map[string]bool
}

// target keeps the name that it gave first.
func (s *soleUnit) target() string {
	switch {
	case s.name != "":
	case s.unit != "":
		s.name = s.unit
	default:
		s.name = s.path
	}
	return s.name
}

// own says whether the entry is a line of the unit. Lines of no unit at all
// count, as other collectors drop that field.
func (s *soleUnit) own(e *Entry) (string, bool) {
	unit := e.Bytes(SystemdUnit)
	switch {
	case e.Is(Transport, "driver"), string(unit) == "init.scope":
		return "", false
	case len(unit) == 0:
		return s.target(), true
	}
	return s.named(string(unit))
}

// named says whether unit is the one, and adopts the first.
func (s *soleUnit) named(unit string) (string, bool) {
	switch {
	case unit == "":
		return "", false
	case s.unit == "":
		s.unit = unit
	case unit != s.unit:
		if len(s.others) < 8 {
			s.others[unit] = true
		}
		return "", false
	}
	return s.target(), true
}

// err says that the file holds more than one unit.
func (s *soleUnit) err(path string) error {
	if s == nil || len(s.others) == 0 {
		return nil
	}
	names := []string{s.unit}
	for u := range s.others {
		names = append(names, u)
	}
	sort.Strings(names[1:])
	return fmt.Errorf("%s: holds entries of several units (%s): name one with --unit", path, strings.Join(names, ", "))
}
