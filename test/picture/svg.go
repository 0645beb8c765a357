package main

import (
	"fmt"
	"html"
	"image/color"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
)

// The measures of a cell, in the picture's units.
const (
	cellWidth, cellHeight = 8.4, 18
	margin                = 14
	baseline              = 13.5
	background            = "#16181d"
	foreground            = "#d5d8df"
)

// screen is a terminal's content.
type screen interface {
	// CellAt returns the cell at a column and row; nil where there is none.
	CellAt(x, y int) *uv.Cell
}

// draw returns a screen as SVG. Block characters are drawn as areas: fonts leave
// gaps between them.
func draw(s screen, columns, rows int) string {
	width, height := float64(columns)*cellWidth+2*margin, rows*cellHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" font-family="ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace" font-size="14">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", background)
	for y := range rows {
		for _, r := range runs(s, columns, y) {
			r.draw(&b, y)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// stretch is cells side by side that look alike.
type stretch struct {
	from, columns int
	text          string
	style         uv.Style
}

// runs are a row's, without what is blank.
func runs(s screen, columns, y int) []stretch {
	var all []stretch
	for x := 0; x < columns; {
		c := s.CellAt(x, y)
		if c == nil || c.Width == 0 || strings.TrimSpace(c.Content) == "" && c.Style.Attrs&uv.AttrReverse == 0 {
			x++
			continue
		}
		n := len(all)
		if n > 0 && all[n-1].continues(x, c) {
			all[n-1].text += c.Content
			all[n-1].columns += c.Width
		} else {
			all = append(all, stretch{from: x, columns: c.Width, text: c.Content, style: c.Style})
		}
		x += c.Width
	}
	return all
}

// continues says that a cell belongs to the stretch: right after it, in its style,
// and of its kind.
func (r *stretch) continues(x int, c *uv.Cell) bool {
	return x == r.from+r.columns && r.style.Equal(&c.Style) && shade(r.text) == shade(c.Content)
}

// shade is how much of its cell a block character fills; 0 for other text.
func shade(text string) float64 {
	for glyph, share := range map[string]float64{"█": 1, "▓": 0.7, "▒": 0.45, "░": 0.2} {
		if strings.HasPrefix(text, glyph) {
			return share
		}
	}
	return 0
}

func (r *stretch) draw(b *strings.Builder, y int) {
	x, top := margin+float64(r.from)*cellWidth, float64(margin+y*cellHeight)
	width := float64(r.columns) * cellWidth
	ink, weight, opacity := foreground, "", 1.0
	if r.style.Fg != nil {
		ink = hex(r.style.Fg)
	}
	if r.style.Attrs&uv.AttrBold != 0 {
		weight = ` font-weight="bold"`
	}
	if r.style.Attrs&uv.AttrFaint != 0 {
		opacity = 0.6
	}
	if r.style.Attrs&uv.AttrReverse != 0 {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n", x, top, width, cellHeight, ink)
		ink = background
	}
	if share := shade(r.text); share > 0 {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s" opacity="%.2f"/>`+"\n", x, top+2, width, cellHeight-4, ink, share)
		return
	}
	if strings.TrimSpace(r.text) == "" {
		return
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" xml:space="preserve" fill="%s" opacity="%.2f"%s>%s</text>`+"\n",
		x, top+baseline, width, ink, opacity, weight, html.EscapeString(r.text))
}

// hex is a colour for SVG. The sixteen of a terminal are its own; here they are
// ones that can be read on the background.
func hex(c color.Color) string {
	if basic, ok := c.(ansi.BasicColor); ok {
		return []string{
			"#5c6370", "#ef6b73", "#8cc265", "#e5c07b", "#61afef", "#c678dd", "#4fb8c4", "#d5d8df",
			"#7f848e", "#ff7b85", "#a5e075", "#f0d08a", "#74bfff", "#d68fee", "#5fd0dc", "#ffffff",
		}[basic&15]
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
