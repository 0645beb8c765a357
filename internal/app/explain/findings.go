package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/startupd/startupd/pkg/triage"
)

const (
	// maxFolded bounds the kinds of consequence that are told one by one.
	maxFolded = 3
	// maxSuspects bounds the suspects that are shown.
	maxSuspects = 5
	// maxFoldedText bounds what is told of a consequence, in columns.
	maxFoldedText = 60
)

// findings writes what else looked like an error, most telling first.
func (p *page) findings(s *Startup) {
	var symptoms, suspects, benign []*Finding
	for i := range s.Findings {
		f := &s.Findings[i]
		switch triage.Verdict(f.Verdict) {
		case triage.Symptom:
			symptoms = append(symptoms, f)
		case triage.Benign:
			benign = append(benign, f)
		case triage.Cause:
			// The card tells the cause; another one passed, or came later.
			if f != s.causeFinding() {
				suspects = append(suspects, f)
			}
		default:
			suspects = append(suspects, f)
		}
	}
	if len(symptoms) > 0 {
		p.sentence(bold, plural(records(symptoms), "consequence"), ": "+folded(symptoms))
	}
	p.suspects(suspects)
	if len(benign) > 0 {
		p.sentence("", harmless(benign), "")
	}
	switch n := s.NewErrors; {
	case n == nil || len(s.Findings) == 0:
	case *n == 0:
		p.sentence("", "nothing new", ": good starts have had each of these errors")
	default:
		p.sentence(yellow, "new", ": "+plural(*n, "kind")+" of error that no good start has had")
	}
	if len(s.Findings) > 0 && len(symptoms)+len(suspects)+len(benign) > 0 {
		p.line("")
	}
}

// folded is the consequences in a sentence, those told most often first.
func folded(symptoms []*Finding) string {
	byCount := slices.Clone(symptoms)
	slices.SortStableFunc(byCount, func(a, b *Finding) int { return b.Count - a.Count })
	var parts []string
	for i, f := range byCount {
		if i == maxFolded {
			parts = append(parts, fmt.Sprintf("and %s", plural(len(byCount)-i, "more kind")))
			break
		}
		text := cut(f.text(), maxFoldedText)
		if f.Count > 1 {
			text = fmt.Sprintf("%dx %s", f.Count, text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// harmless is the benign findings in one line.
func harmless(benign []*Finding) string {
	return plural(records(benign), "harmless error line") + " of " + plural(len(benign), "kind")
}

func records(list []*Finding) int {
	n := 0
	for _, f := range list {
		n += f.Count
	}
	return n
}

// suspects writes the errors whose part in it is not known, new ones first.
func (p *page) suspects(list []*Finding) {
	if len(list) == 0 {
		return
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *Finding) int { return b.newness() - a.newness() })
	p.sentence(bold, plural(len(list), "suspect"), " (errors whose part in it is not known)")
	for i, f := range list {
		if i == maxSuspects {
			p.line("    and %d more", len(list)-i)
			return
		}
		p.line("    %s", cut(f.row(), p.opts.width()-4))
	}
}

func (f *Finding) newness() int {
	if f.New != nil && *f.New {
		return 1
	}
	return 0
}

// row is a finding in a line: where, who, how often, what.
func (f *Finding) row() string {
	var parts []string
	if where := f.place(); where != "" {
		parts = append(parts, where)
	}
	if f.Process != nil {
		parts = append(parts, Visible(*f.Process))
	}
	if f.Count > 1 {
		parts = append(parts, fmt.Sprintf("%dx", f.Count))
	}
	if f.newness() > 0 {
		parts = append(parts, "new")
	}
	if f.Class != triage.ClassUnknown {
		parts = append(parts, Visible(f.Class))
	}
	return strings.Join(append(parts, f.text()), "  ")
}

// place is where the first record stands; "" when that is not known.
func (f *Finding) place() string {
	switch {
	case len(f.Lines) > 0:
		return fmt.Sprintf("line %d", f.Lines[0])
	case f.First != nil:
		return f.First.Format(time.TimeOnly)
	}
	return ""
}

// text is the message with its exception, as far as they are known.
func (f *Finding) text() string {
	switch {
	case f.Message != nil && *f.Message != "":
		return Visible(*f.Message)
	case f.Exception != nil:
		return Visible(*f.Exception)
	}
	return "(no text)"
}
