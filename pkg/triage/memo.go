package triage

import "strings"

// Memo remembers the masked forms and fingerprints of messages, for Trackers that
// see the same errors again: those of a unit's restarts. It is not safe for
// concurrent use.
type Memo struct{ known map[string]string }

// maxMemo bounds the entries of a Memo; a full one begins anew.
const maxMemo = 512

// of returns what build makes of a key, and makes it once.
func (m *Memo) of(key string, build func() string) string {
	if m == nil {
		return build()
	}
	if v, ok := m.known[key]; ok {
		return v
	}
	if m.known == nil || len(m.known) >= maxMemo {
		m.known = map[string]string{}
	}
	v := build()
	m.known[key] = v
	return v
}

func (m *Memo) mask(message string) string {
	return m.of(message, func() string { return MaskMessage(message) })
}

func (m *Memo) fingerprint(exception string, frames []Frame, message string) string {
	var key strings.Builder
	key.WriteString("\x00" + exception + "\x00" + message)
	for _, f := range frames {
		key.WriteString("\x00" + f.File + "\x00" + f.Func)
	}
	return m.of(key.String(), func() string { return Fingerprint(exception, frames, message) })
}
