package page

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/web/api"
)

// mostAssets leaves the page of a unit 45 KB of the 150 KB that all may need.
const mostAssets = 105_000

func TestAssets(t *testing.T) {
	h := newPage(t, Options{Status: func() *api.Status { return nil }})
	body := ask(t, h, "/").Body.String()
	sum := 0
	for _, m := range regexp.MustCompile(`(?:src|href)="(page/[^"]*)"`).FindAllStringSubmatch(body, -1) {
		w := ask(t, h, "/"+m[1])
		head := w.Header()
		if w.Code != http.StatusOK || !strings.Contains(head.Get("Cache-Control"), "immutable") || head.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", m[1], w.Code, head)
		}
		sum += w.Body.Len()
		if strings.HasSuffix(m[1], ".css") && strings.Contains(w.Body.String(), "url(") {
			t.Errorf("%s loads something else", m[1])
		}
	}
	if sum == 0 || sum > mostAssets {
		t.Errorf("the assets are %d bytes, more than %d", sum, mostAssets)
	}
	if m := regexp.MustCompile(`(?i)(style="|onclick|onload|https?://|<script>)`).FindString(body); m != "" {
		t.Errorf("the page has %q, which its policy forbids", m)
	}
}

// TestCopies: what comes from elsewhere is what its README says.
func TestCopies(t *testing.T) {
	readme, err := os.ReadFile("assets/README.md")
	if err != nil {
		t.Fatal(err)
	}
	sums := regexp.MustCompile(`(?m)^    ([0-9a-f]{64})  (\S+)$`).FindAllStringSubmatch(string(readme), -1)
	if len(sums) != 3 {
		t.Fatalf("%d sums in the README", len(sums))
	}
	for _, s := range sums {
		b, err := os.ReadFile(filepath.Join("assets", s[2]))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != s[1] {
			t.Errorf("%s is not the file that the README tells of: %x", s[2], sum)
		}
		if _, err := os.Stat(filepath.Join("assets", strings.TrimSuffix(s[2], filepath.Ext(s[2]))+".LICENSE")); err != nil {
			t.Error(err)
		}
	}
}

// colours are the variables of both schemes, the light ones first.
func colours(t *testing.T) [2]map[string]string {
	t.Helper()
	css, err := os.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(css), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of variables", len(blocks))
	}
	var out [2]map[string]string
	for i, b := range blocks {
		out[i] = map[string]string{}
		for _, m := range regexp.MustCompile(`--([\w-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(b[1], -1) {
			out[i][m[1]] = m[2]
		}
	}
	return out
}

// luminance is WCAG 2's relative luminance of a colour.
func luminance(t *testing.T, hexColour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hexColour, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	channel := func(shift uint) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(16) + 0.7152*channel(8) + 0.0722*channel(0)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestContrast: WCAG AA, 4.5 for text and 3 for what is drawn.
func TestContrast(t *testing.T) {
	if c := contrast(t, "000000", "ffffff"); math.Abs(c-21) > 0.01 {
		t.Fatalf("black on white is %.2f", c)
	}
	text := map[string][]string{
		"back":      {"text", "dim", "link", "good", "bad", "warn", "run"},
		"card":      {"text", "dim", "link", "good", "bad", "warn", "run"},
		"bad-back":  {"text", "bad", "link"},
		"warn-back": {"text", "warn"},
		"run":       {"mark-text"}, "good": {"mark-text"}, "bad": {"mark-text"}, "dim": {"mark-text"},
	}
	drawn := map[string][]string{"card": {"spawn", "load", "compile", "cudagraph", "serving", "unit", "others", "foreign", "unattributed", "rest", "plateau"}}
	for i, scheme := range colours(t) {
		name := []string{"light", "dark"}[i]
		if len(scheme) < 25 {
			t.Fatalf("%s: only %d colours", name, len(scheme))
		}
		for _, need := range []struct {
			of    map[string][]string
			ratio float64
		}{{text, 4.5}, {drawn, 3}} {
			for back, fronts := range need.of {
				for _, front := range fronts {
					if c := contrast(t, scheme[front], scheme[back]); c < need.ratio {
						t.Errorf("%s: %s on %s is %.2f, less than %.1f", name, front, back, c, need.ratio)
					}
				}
			}
		}
		// The mark on a bar has an outline in the colour of the card.
		if c := max(contrast(t, scheme["plateau"], scheme["unit"]), contrast(t, scheme["card"], scheme["unit"])); c < 3 {
			t.Errorf("%s: the plateau's mark on a bar is %.2f", name, c)
		}
	}
}
