package watch

import (
	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	"charm.land/lipgloss/v2"
)

// keys are what the operator can press.
type keys struct {
	up, down, next, previous      key.Binding
	pageUp, pageDown, top, bottom key.Binding
	whole, benign, pause          key.Binding
	help, quit, suspend           key.Binding
}

func newKeys() keys {
	bind := func(name, what string, ks ...string) key.Binding {
		return key.NewBinding(key.WithKeys(ks...), key.WithHelp(name, what))
	}
	return keys{
		up:       bind("k/up", "unit above; scroll up", "k", "up"),
		down:     bind("j/down", "unit below; scroll down", "j", "down"),
		next:     bind("tab", "next unit", "tab", "right", "l"),
		previous: bind("shift+tab", "previous unit", "shift+tab", "left", "h"),
		pageUp:   bind("b/pgup", "page up", "b", "pgup", "ctrl+u", "ctrl+b"),
		pageDown: bind("space/pgdn", "page down", "space", "pgdown", "ctrl+d", "ctrl+f"),
		top:      bind("g/home", "top", "g", "home"),
		bottom:   bind("G/end", "bottom", "G", "end"),
		whole:    bind("enter", "detail only, or with the list", "enter"),
		benign:   bind("f", "show or fold harmless errors", "f"),
		pause:    bind("p", "pause, go on", "p"),
		help:     bind("?", "help", "?"),
		quit:     bind("q", "quit", "q", "ctrl+c", "esc"),
		suspend:  bind("ctrl+z", "suspend", "ctrl+z"),
	}
}

// brief are the keys for the last line; those of a list only where there is one.
func (k keys) brief(several, whole bool) []key.Binding {
	short := func(b key.Binding, name, what string) key.Binding {
		b.SetHelp(name, what)
		return b
	}
	bs := []key.Binding{short(k.quit, "q", "quit")}
	switch {
	case several && whole:
		bs = append(bs, short(k.whole, "enter", "list"), short(k.next, "tab", "next"))
	case several:
		bs = append(bs, short(k.down, "j/k", "unit"), short(k.whole, "enter", "detail"))
	default:
		bs = append(bs, short(k.down, "j/k", "scroll"))
	}
	return append(bs, short(k.help, "?", "help"), short(k.benign, "f", "harmless"), short(k.pause, "p", "pause"))
}

func (k keys) all() [][]key.Binding {
	return [][]key.Binding{
		{k.down, k.up, k.next, k.previous, k.whole},
		{k.pageDown, k.pageUp, k.top, k.bottom},
		{k.benign, k.pause, k.suspend, k.help, k.quit},
	}
}

// newHelp draws keys in the terminal's own colours, or in none.
func newHelp(o Options) help.Model {
	h := help.New()
	k := newInk(o)
	plain, faint := lipgloss.NewStyle(), lipgloss.NewStyle()
	if o.Color {
		plain, faint = k.styles[bold], k.styles[dim]
	}
	h.Styles = help.Styles{
		Ellipsis: faint, ShortKey: plain, ShortDesc: faint, ShortSeparator: faint,
		FullKey: plain, FullDesc: faint, FullSeparator: faint,
	}
	h.ShortSeparator, h.FullSeparator, h.Ellipsis = "  ", "   ", k.more
	return h
}
