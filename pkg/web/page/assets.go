package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed assets templates
var embedded embed.FS

// asset is one embedded file.
type asset struct {
	kind string
	body []byte
}

// assets holds the embedded files under names that change with their content,
// so that a browser may keep them for good.
type assets struct {
	// files is by hashed name, names maps plain names to hashed ones.
	files map[string]asset
	names map[string]string
	// build changes with any file and any template: a page of another build has
	// to be loaded anew.
	build string
}

func loadAssets() (assets, error) {
	a := assets{files: map[string]asset{}, names: map[string]string{}}
	all := sha256.New()
	err := fs.WalkDir(embedded, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		all.Write(body)
		kind := contentType(name)
		if kind == "" || !strings.HasPrefix(name, "assets/") {
			return nil
		}
		sum := sha256.Sum256(body)
		plain := path.Base(name)
		ext := path.Ext(plain)
		hashed := strings.TrimSuffix(plain, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.names[plain], a.files[hashed] = hashed, asset{kind, body}
		return nil
	})
	if err != nil {
		return assets{}, fmt.Errorf("web page: embedded files: %w", err)
	}
	a.build = hex.EncodeToString(all.Sum(nil)[:6])
	return a, nil
}

// contentType is "" for a file that is not served.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return ""
}

// url is relative to the page, which a proxy may serve below a path of its own.
func (a assets) url(name string) (string, error) {
	hashed, ok := a.names[name]
	if !ok {
		return "", fmt.Errorf("no asset %q", name)
	}
	return "page/assets/" + hashed, nil
}

func (a assets) serve(w http.ResponseWriter, r *http.Request) {
	f, ok := a.files[r.PathValue("name")]
	if !ok {
		http.Error(w, "No such file in this build of startupd; load the page again.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(f.body)
}

func loadTemplates(a assets) (*template.Template, error) {
	t, err := template.New("").Funcs(template.FuncMap{"asset": a.url, "visible": visible}).ParseFS(embedded, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("web page: %w", err)
	}
	return t, nil
}
