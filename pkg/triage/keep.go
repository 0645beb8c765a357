package triage

import (
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/profile"
)

// finding makes a finding of a record's lines; nil when it says nothing.
func (rec *record) finding(key streamKey) *finding {
	h := rec.best
	f := &finding{seq: rec.seq, uncaught: rec.uncaught, logged: rec.header != "", origins: []origin{{stream: key, pid: rec.first.PID, uncaught: rec.uncaught}}}
	switch {
	case rec.benign != nil && (h == nil || h.seq > rec.benign.seq):
		h = rec.benign
		if len(h.rule.CauseIf) == 0 && !alarming(rec.level, h.message) {
			return nil
		}
		f.benign = true
		f.causeIf = h.rule.CauseIf
	case h == nil && rec.level < profile.LevelError:
		return nil
	case h == nil:
		h = &hit{class: ClassUnknown, message: rec.title, process: rec.process, place: rec.first, seq: rec.seq}
	}
	f.tier, f.seq, f.remedy, f.retry, f.elseClass, f.frames = h.tier, h.seq, h.remedy, h.retry, h.elseClass, h.frames
	f.elseRemedy, f.elseRetry = h.elseRemedy, h.elseRetry
	if h.process == "" {
		h.process = rec.process
	}
	f.pub = Finding{
		Class: h.class, Exception: h.exception, Message: h.message, Process: h.process,
		Cursor: h.place.Cursor, At: h.place.At, Count: 1,
	}
	if h.rule != nil {
		f.pub.Rule, f.waits = h.rule.ID, h.rule.Waits
	}
	if h.process != "" {
		f.pub.Processes = []string{h.process}
	}
	if h.place.Line > 0 {
		f.pub.Lines = []int{h.place.Line}
	}
	return f
}

// id is what makes two findings the same error.
func (f *finding) id(m *Memo) string {
	if f.key == "" {
		kind := "!"
		switch {
		case f.benign:
			kind = "benign"
		case f.tier == tierSymptom:
			kind = "symptom"
		}
		last := f.pub.Exception[strings.LastIndexByte(f.pub.Exception, '.')+1:]
		message := strings.TrimPrefix(f.pub.Message, f.pub.Exception+": ")
		f.key = kind + "\x00" + f.pub.Class + "\x00" + last + "\x00" + m.mask(message)
	}
	return f.key
}

// keep adds a finding, or counts it with an equal one.
func (t *Tracker) keep(f *finding) {
	if t.index == nil {
		t.index = map[string]*finding{}
	}
	if old := t.index[f.id(t.memo)]; old != nil {
		if old.seq <= f.seq {
			old.join(f)
			return
		}
		// Its record began earlier and ended later.
		t.findings = slices.DeleteFunc(t.findings, func(o *finding) bool { return o == old })
		f.join(old)
	} else if len(t.findings) == maxFindings && !t.makeRoom(f) {
		return
	}
	f.pub.Fingerprint = t.memo.fingerprint(f.pub.Exception, f.frames, f.pub.Message)
	t.index[f.id(t.memo)] = f
	at, _ := slices.BinarySearchFunc(t.findings, f, func(a, b *finding) int { return a.seq - b.seq })
	t.findings = slices.Insert(t.findings, at, f)
}

// makeRoom drops the last of those findings that can explain least, for one that
// can explain more.
func (t *Tracker) makeRoom(f *finding) bool {
	worth := func(o *finding) tier {
		if o.cleared {
			return tierNone
		}
		return o.tier.level()
	}
	least := 0
	for i, o := range t.findings {
		if worth(o) <= worth(t.findings[least]) {
			least = i
		}
	}
	o := t.findings[least]
	if worth(o) >= worth(f) {
		return false
	}
	delete(t.index, o.id(t.memo))
	t.findings = slices.Delete(t.findings, least, least+1)
	return true
}

// join counts another record that says the same.
func (f *finding) join(o *finding) {
	f.pub.Count += o.pub.Count
	for _, name := range o.pub.Processes {
		if !slices.Contains(f.pub.Processes, name) && len(f.pub.Processes) < maxName {
			f.pub.Processes = append(f.pub.Processes, name)
		}
	}
	for _, n := range o.pub.Lines {
		if len(f.pub.Lines) < maxLines {
			f.pub.Lines = append(f.pub.Lines, n)
		}
	}
	f.uncaught = f.uncaught || o.uncaught
	for _, from := range o.origins {
		switch {
		case slices.Contains(f.origins, from):
		case len(f.origins) == maxOrigins:
			f.more = true
		default:
			f.origins = append(f.origins, from)
		}
	}
	// Its process went on after the one, and may die of the other.
	f.cleared = f.cleared && o.cleared
}
