package phases

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/startupd/startupd/pkg/triage"
)

const (
	// maxMessage bounds Target.FailureMessage, in bytes.
	maxMessage = 256
	// maxMessages bounds the errors whose first text is kept: those told last.
	maxMessages = 16
)

// message is what the first of several starts said that failed of the same error.
type message struct{ fingerprint, text string }

// failureMessage is Target.FailureMessage for a cause; "" for nil. It is the text
// that was told first of the same error, and is kept for the next start: texts
// differ in numbers, and each would make another series of the same crash. Also one
// that is shown for a moment only, until all the evidence is there, comes again.
func (m *Machine) failureMessage(c *triage.RootCause) string {
	if c == nil {
		return ""
	}
	if c == m.shown.cause { // each snapshot asks
		return m.shown.text
	}
	o := message{fingerprint: identity(c)}
	i := slices.IndexFunc(m.messages, func(k message) bool { return k.fingerprint == o.fingerprint })
	if i >= 0 {
		o = m.messages[i]
		m.messages = slices.Delete(m.messages, i, i+1)
	} else {
		o.text = oneLine(c.Message)
	}
	if len(m.messages) == maxMessages {
		m.messages = slices.Delete(m.messages, 0, 1)
	}
	m.messages = append(m.messages, o)
	m.shown.cause, m.shown.text = c, o.text
	return o.text
}

// identity is a cause's fingerprint; where the evidence is no record of the log, it
// is made of what the cause says.
func identity(c *triage.RootCause) string {
	if c.Fingerprint != "" {
		return c.Fingerprint
	}
	return triage.Fingerprint(c.Exception, nil, c.Message)
}

// oneLine makes a text of a log fit for a label: valid UTF-8 in one line, nothing
// that moves a cursor or turns the direction of writing, at most maxMessage bytes.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage
	for !utf8.RuneStart(text[end]) {
		end--
	}
	// What is cut off must not stay in memory.
	return strings.Clone(text[:end])
}

func saveMessages(all []message) []SavedMessage {
	var out []SavedMessage
	for _, o := range all {
		out = append(out, SavedMessage{Fingerprint: o.fingerprint, Text: o.text})
	}
	return out
}

func restoreMessages(all []SavedMessage) []message {
	var out []message
	for _, o := range all[max(0, len(all)-maxMessages):] {
		out = append(out, message{o.Fingerprint, oneLine(o.Text)})
	}
	return out
}
