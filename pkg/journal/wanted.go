//go:build sdjournal

package journal

// wantedField is a field that the reader child passes on.
type wantedField struct {
	name string
	// always: for each entry. The others come only for an entry that is no mere
	// line of a unit, which one of the conditions below tells.
	always  bool
	present bool
	equals  string // one of several words
	ends    string
}

// wantedFields is what the Mapper reads of the entries.
func wantedFields(q *request) []wantedField {
	names := fieldNames()
	var w []wantedField
	for f := BootID + 1; f < numFields; f++ {
		a := wantedField{name: names[f]}
		switch f {
		case PID:
			a.always, a.equals = true, "1"
		case Message, SystemdUnit, SystemdInvocation, LineBreak:
			a.always = true
		case SystemdCgroup:
			// The entries of every unit are read: the mapper filters.
			a.always = len(q.Matches) == 0
		case Transport:
			a.equals = "kernel driver"
		case MessageID, ContainerName:
			a.present = true
		case SyslogIdentifier:
			a.equals = ownName
		case Exe:
			a.ends = "/" + ownName
		}
		w = append(w, a)
	}
	return w
}
