package triage

import (
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/profile"
)

// Place is where a line stands.
type Place struct {
	// Line is 1-based in a text input, Cursor the journal's; zero when not known.
	Line   int
	Cursor string
	At     event.Stamp
	// PID is the writer as the host counts processes, Proc what a wrapper around
	// the log names; zero when not known.
	PID  int
	Proc string
}

// tier orders what can be a root cause.
type tier int

const (
	// tierNone names no cause.
	tierNone tier = iota
	// tierSymptom reports or follows a failure.
	tierSymptom
	// tierHint is an exception that did not end its process at once, as far as is
	// known: better than nothing.
	tierHint
	// tierLast counts where there is nothing better: a stop from outside.
	tierLast
	// tierFallback is an exception that no rule knows, tierWeak one of a known kind.
	// Of both the earlier one counts.
	tierFallback
	tierWeak
	// tierStrong names the cause.
	tierStrong
	// tierEvidence is the kernel's or systemd's own word.
	tierEvidence
)

// level puts fallback and weak on one step, as between records the earlier one
// counts.
func (t tier) level() tier {
	if t == tierWeak {
		return tierFallback
	}
	return t
}

// hit is a line that says something of a failure.
type hit struct {
	rule               *profile.Rule
	tier               tier
	class, exception   string
	message, remedy    string
	process, elseClass string
	retry              *bool
	elseRemedy         string
	elseRetry          *bool
	frames             []Frame
	place              Place
	seq                int
	benign             bool
}

// state is what a record expects next.
type state int

const (
	// inText: a title, or a native block without a form.
	inText state = iota
	// inFrames: a traceback's frames, up to the exception's own line.
	inFrames
	// inMessage: what follows the exception's line.
	inMessage
)

const (
	maxFrames = 32
	// maxFollow is how many lines without a header may follow an exception's line,
	// or a native error's first one.
	maxFollow = 40
	// maxMessage bounds a kept message, in bytes.
	maxMessage = 512
)

// record is one record of log while its lines come.
type record struct {
	// header is the same for all lines of a logged record; "" for a raw one.
	header string
	level  profile.Level
	first  Place
	title  string
	state  state
	// frames are those of the present traceback block.
	frames []Frame
	// chained says that the next traceback belongs to the same exception.
	chained bool
	// heads says that the last line announces a traceback ("Process Worker-1:").
	heads bool
	// uncaught says that it is a traceback that nobody logged.
	uncaught bool
	follow   int
	process  string
	seq      int
	best     *hit
	// benign is the harmless rule of the first line, which the whole record is
	// swallowed by.
	benign *hit
}

const (
	tracebackHead = "Traceback (most recent call last)"
	directCause   = "The above exception was the direct cause of the following exception:"
	whileHandling = "During handling of the above exception, another exception occurred:"
)

// begins says whether a line opens a record that matters here.
func begins(r *profile.Record) bool {
	if r.Rule != nil && troublesome(r.Rule) || len(r.Conditional) > 0 {
		return true
	}
	return r.Level >= profile.LevelError || r.Exception != "" || isTraceback(r)
}

func isTraceback(r *profile.Record) bool {
	return (r.Kind == profile.KindRaw || r.Level >= profile.LevelError) && strings.Contains(r.Message, tracebackHead)
}

// troublesome says whether a rule's line belongs to a failure, or looks so.
func troublesome(r *profile.Rule) bool {
	switch r.Role {
	case profile.RoleCause, profile.RoleWrapper, profile.RoleCascade, profile.RoleTeardown, profile.RoleBenign:
		return true
	case profile.RoleStop:
		return r.Class != ""
	}
	return r.ElseClass != ""
}

// continues says whether a line of the same process goes on with the record.
func (rec *record) continues(r *profile.Record) bool {
	// A harmless line and an error of the same instant have the same header.
	if rec.state == inText && rec.benign != nil && r.Exception != "" {
		return false
	}
	if rec.header != "" {
		// One without a time or a place can be of any record.
		return strings.TrimRight(r.Header, " ") == rec.header && strings.ContainsAny(rec.header, "0123456789")
	}
	switch {
	case isTraceback(r):
		return rec.chained || rec.heads
	case rec.state == inFrames, rec.chained:
		return true
	case rec.state == inMessage && r.Exception != "":
		return false
	case rec.state == inMessage && r.Rule != nil && r.Rule.Role != profile.RoleCause:
		return false
	case rec.state == inText && r.Rule != nil && !indented(r.Message):
		return false // each line of native code is an error of its own
	}
	rec.follow++
	return rec.follow <= maxFollow
}

// interrupts says whether a line of native code, which names a cause, stands amid
// the frames of a traceback.
func (rec *record) interrupts(r *profile.Record) bool {
	return rec.header == "" && rec.state == inFrames && r.Rule != nil && r.Rule.Role == profile.RoleCause &&
		r.Exception == "" && !indented(r.Message) && !isTraceback(r) && !endsTraceback(r)
}

// indented says whether a line is a frame or a source echo of a traceback.
func indented(message string) bool { return strings.HasPrefix(message, "  ") || message == "" }

// take reads one more line. best is what the line itself says; nil for nothing.
func (rec *record) take(r *profile.Record, weigh func(r *profile.Record, frames []Frame) *hit) {
	m := r.Message
	if isTraceback(r) {
		if rec.title == "" && !strings.HasPrefix(m, tracebackHead) && r.Rule != nil {
			rec.offer(weigh(r, nil))
		}
		rec.state, rec.frames, rec.chained, rec.heads = inFrames, nil, false, false
		rec.uncaught = rec.header == ""
		return
	}
	switch rec.state {
	case inFrames:
		if frame, ok := parseFrame(m); ok {
			rec.addFrame(frame)
			return
		}
		if indented(m) || !endsTraceback(r) {
			return
		}
		rec.state, rec.follow = inMessage, 0
		rec.offer(weigh(r, rec.frames))
	case inMessage:
		if m == directCause || m == whileHandling || strings.HasPrefix(strings.TrimLeft(m, " "), "+-") {
			rec.chained = true // or a member of an exception group
			return
		}
		rec.offer(weigh(r, rec.frames))
	case inText:
		if rec.title == "" {
			rec.title = Clip(m, maxMessage)
		}
		if frame, ok := parseFrame(m); ok {
			// The traceback's head is missing: the log begins in its middle.
			rec.state = inFrames
			rec.addFrame(frame)
			return
		}
		rec.heads = strings.HasSuffix(m, ":") || strings.HasPrefix(m, "Exception ")
		rec.offer(weigh(r, nil))
		if r.Exception != "" {
			rec.state = inMessage
		}
	}
}

// endsTraceback says whether a line can be the last one of a traceback, which
// names the exception; others are of a neighbour.
func endsTraceback(r *profile.Record) bool {
	if r.Exception != "" {
		return true
	}
	name, _, _ := strings.Cut(r.Message, ":")
	word := strings.IndexFunc(name, func(c rune) bool {
		return c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}) < 0
	return name != "" && word && (r.Rule == nil || troublesome(r.Rule))
}

// offer keeps the better one of two lines of a record: the more precise, of
// equals the earlier. A chain's innermost exception comes first.
func (rec *record) offer(h *hit) {
	if h == nil {
		return
	}
	if h.benign {
		if rec.benign == nil && rec.best == nil {
			rec.benign = h
		}
		return
	}
	old := rec.best
	switch {
	case old == nil:
	case h.tier > old.tier:
		if h.exception == "" {
			h.exception = old.exception
		}
		h.seq = old.seq
	case h.tier == old.tier && old.exception == "" && h.exception != "":
		h.seq = old.seq // the title of the record says it in fewer words
	default:
		return
	}
	rec.best = h
}

func (rec *record) addFrame(f Frame) {
	if len(rec.frames) == maxFrames {
		// The innermost frames tell most: those in the middle go.
		rec.frames = slices.Delete(rec.frames, maxFrames/4, maxFrames/4+1)
	}
	rec.frames = append(rec.frames, Frame{File: bounded(f.File), Func: bounded(f.Func)})
}

// bounded copies a name, so that it does not keep its line.
func bounded(name string) string { return strings.Clone(name[:min(len(name), maxMessage)]) }

// parseFrame reads a traceback's line
//
//	File "/x/core.py", line 699, in run_engine_core
func parseFrame(message string) (Frame, bool) {
	// A collector may have taken the indentation away.
	rest, ok := strings.CutPrefix(strings.TrimLeft(message, " "), `File "`)
	if !ok {
		return Frame{}, false
	}
	file, rest, ok := strings.Cut(rest, `", line `)
	if !ok {
		return Frame{}, false
	}
	_, fn, _ := strings.Cut(rest, ", in ")
	return Frame{File: file, Func: fn}, true
}

// alarming says whether a harmless line looks like an error to somebody who
// greps for one; the others are no findings.
func alarming(level profile.Level, message string) bool {
	if level != profile.LevelNone {
		return level >= profile.LevelWarning
	}
	for i := range len(message) {
		switch message[i] | 0x20 {
		case 'e', 'f', 'w', 'u', 'c', 'a', 'd', 'o':
			for _, word := range []string{"error", "exception", "fail", "fatal", "warn", "unable", "cannot", "can't", "critical", "abort", "denied", "oom"} {
				if len(message)-i >= len(word) && strings.EqualFold(message[i:i+len(word)], word) {
					return true
				}
			}
		}
	}
	return false
}
