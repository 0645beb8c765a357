package scenario

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// writes composes what one process writes for an item; times count from the
// item's own. What remains to be filled in is {pid} and {time}.
func (f *File) writes(it Item, name string) ([]Write, error) {
	prefix := strings.ReplaceAll(f.Format.Prefix, "{name}", name)
	if it.Bare {
		prefix = ""
	}
	switch {
	case it.Bar != nil && it.Log == nil && it.Say == "":
		return bar(*it.Bar, time.Duration(it.At), prefix)
	case it.Log != nil && it.Bar == nil && it.Say == "":
		return []Write{{text: f.log(*it.Log, prefix)}}, nil
	case it.Say != "" && it.Bar == nil && it.Log == nil:
		return []Write{{text: lines(it.Say, prefix, "\n")}}, nil
	}
	return nil, errors.New("give exactly one of say, log and bar")
}

// log puts the header before every line. Lines but the last end with a
// carriage return too, as the engine's formatter writes them.
func (f *File) log(l Log, prefix string) string {
	head, _, _ := strings.Cut(f.Format.Log, "{text}")
	head = strings.NewReplacer("{level}", l.Level, "{src}", l.Src).Replace(head)
	return strings.TrimSuffix(lines(l.Text, prefix+head, "\r\n"), "\r\n") + "\n"
}

func lines(text, prefix, end string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString(prefix + line + end)
	}
	return b.String()
}

func bar(b Bar, at time.Duration, prefix string) ([]Write, error) {
	span := time.Duration(b.Until) - at
	if b.Total < 1 || span <= 0 {
		return nil, fmt.Errorf("a bar needs a total and an until after its at")
	}
	var ws []Write
	for n := range b.Total + 1 {
		elapsed := span * time.Duration(n) / time.Duration(b.Total)
		text := "\r" + b.state(n, elapsed, span)
		switch {
		case !b.Redraw:
			text = prefix + text + "\n"
		case n == 0:
			text = prefix + text
		}
		ws = append(ws, Write{At: elapsed, text: text})
	}
	last := &ws[len(ws)-1]
	if b.Redraw {
		last.text += "\n"
	} else {
		// A bar of lines prints its end twice, then an empty line.
		last.text += last.text + prefix + "\n"
	}
	return ws, nil
}

// state is the bar after n of its steps.
func (b Bar) state(n int, elapsed, span time.Duration) string {
	remaining, rate := "?", "?it/s"
	if n > 0 {
		remaining = clock(span - elapsed)
		per := elapsed.Seconds() / float64(n)
		if per > 1 {
			rate = fmt.Sprintf("%5.2fs/it", per)
		} else {
			rate = fmt.Sprintf("%5.2fit/s", 1/per)
		}
	}
	const width = 10
	full := n * width / b.Total
	return strings.NewReplacer(
		"{pct}", fmt.Sprintf("%3.0f", float64(n)*100/float64(b.Total)),
		"{n}", strconv.Itoa(n), "{total}", strconv.Itoa(b.Total),
		"{bar}", strings.Repeat("█", full)+strings.Repeat(" ", width-full),
		"{elapsed}", clock(elapsed), "{remaining}", remaining, "{rate}", rate,
	).Replace(b.Text)
}

func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}
