package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/startupd/startupd/pkg/web/api"
)

// refreshEvery is how often the page loads itself again where there is no
// script, in seconds.
const refreshEvery = 5

// policy lets the page load only what this server serves: a line of the log
// that became markup could neither run nor send anything.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Options are what the page shows. The functions are called by many goroutines
// at once, and their documents are only read.
type Options struct {
	// Status returns what is known now; nil as long as nothing is.
	Status func() *api.Status
	// Startups returns a unit's finished startups, the newest first and at most
	// limit; the present one may be among them, and with an error comes what there
	// is. A nil function means that no history is kept.
	Startups func(ctx context.Context, unit string, limit int) ([]api.Startup, error)
	// Memory returns a unit's GPU memory since its startup began; nil when there is
	// none. A nil function means that none is recorded.
	Memory func(unit string) *api.Memory
	// Version is startupd's own.
	Version string
	// Zone is that of all times shown; nil is the host's.
	Zone *time.Location
}

// page answers requests.
type page struct {
	opt     Options
	files   assets
	markup  *template.Template
	history *historyCache
}

// New returns the handler of the page at / and of everything below /page/. It
// fails only for incomplete options.
func New(opt Options) (http.Handler, error) {
	if opt.Status == nil {
		return nil, errors.New("web page: Options.Status is nil; give the function that returns the present status")
	}
	opt.Zone = cmp.Or(opt.Zone, time.Local)
	p := &page{opt: opt, history: newHistoryCache(opt.Startups)}
	var err error
	if p.files, err = loadAssets(); err != nil {
		return nil, err
	}
	if p.markup, err = loadTemplates(p.files); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.whole)
	mux.HandleFunc("GET /page/units", p.units)
	mux.HandleFunc("GET /page/unit", p.unit)
	mux.HandleFunc("GET /page/host", p.host)
	mux.HandleFunc("GET /page/memory", p.memory)
	mux.HandleFunc("GET /page/assets/{name}", p.files.serve)
	return harden(mux), nil
}

// harden sets the headers that every answer has.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func (p *page) whole(w http.ResponseWriter, r *http.Request) {
	v := p.view(r.Context())
	// What a reader without a script has unfolded is folded again by each load.
	if r.URL.Query().Get("refresh") == "off" {
		v.Refresh = 0
	}
	p.render(w, "page", v)
}

func (p *page) units(w http.ResponseWriter, r *http.Request) {
	p.render(w, "units", p.view(r.Context()))
}

func (p *page) unit(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("unit")
	for _, u := range p.view(r.Context(), name).Units {
		if u.Name == name {
			p.render(w, "unit", u)
			return
		}
	}
	notWatched(w, name)
}

// host answers with what is no unit's own.
func (p *page) host(w http.ResponseWriter, r *http.Request) {
	p.render(w, "host", p.view(r.Context(), noUnit))
}

// memory answers with the lines that the script plots.
func (p *page) memory(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("unit")
	if s := p.opt.Status(); s == nil || s.Find(name) == nil {
		notWatched(w, name)
		return
	}
	var m *api.Memory
	if p.opt.Memory != nil {
		m = p.opt.Memory(name)
	}
	b, err := json.Marshal(newPlot(m))
	if err != nil {
		http.Error(w, "The memory of unit "+name+" can't be encoded: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

func notWatched(w http.ResponseWriter, unit string) {
	http.Error(w, fmt.Sprintf("Unit %q is not watched; the page at / lists those that are.", unit), http.StatusNotFound)
}

// render answers with a whole fragment or with an error, never with a part.
func (p *page) render(w http.ResponseWriter, name string, data any) {
	var b bytes.Buffer
	if err := p.markup.ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, "The page can't be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// Half a page is what a client that went away gets.
	_, _ = w.Write(b.Bytes())
}
