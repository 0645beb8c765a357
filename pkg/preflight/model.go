package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/startupd/startupd/pkg/profile"
)

// maxWeightFiles bounds the files of a model.
const maxWeightFiles = 10000

// model is what is known of the weights on disk.
type model struct {
	name string
	// bytes is their size; 0 when not known.
	bytes uint64
	// missing is true where they are still to be downloaded.
	missing bool
}

// findModel looks for the model's weights on this host.
func (l *look) findModel() *Result {
	s := l.cmd.setting(profile.SettingModel)
	l.model.name = s.value
	if s.value == "" || l.cmd.container != nil {
		return nil
	}
	r := &Result{Check: CheckModel, Status: Unknown}
	if isPath(s.value) || l.sys.isDir(l.cmd.abs(s.value)) {
		return l.localModel(r, l.cmd.abs(s.value))
	}
	if strings.Count(s.value, "/") > 1 || strings.Contains(s.value, "://") {
		r.What = fmt.Sprintf("%s is no folder here: where it comes from is not known", s.value)
		return r
	}
	if yes(l.cmd.setting(profile.SettingOtherHub).value) {
		r.What = fmt.Sprintf("%s comes from another hub, whose downloads are not looked at", s.value)
		return r
	}
	dir, ok := l.cacheOf(s.value)
	if !ok {
		return nil
	}
	version := newest(l.sys.path(dir))
	if version == "" {
		return l.notDownloaded(r, s.value, dir)
	}
	bytes, n, err := l.sum(version)
	switch {
	case err != nil:
		r.What = fmt.Sprintf("%s: %s", dir, why(err))
	case n == 0 && yes(l.cmd.setting(profile.SettingOffline).value):
		r.What = dir + " holds no weights of a form that is known"
	case n == 0:
		return l.notDownloaded(r, s.value, dir)
	default:
		l.model.bytes = bytes
		r.Status, r.What = OK, fmt.Sprintf("%s is downloaded: %s in %s", s.value, gib(bytes), counted(n, "file"))
	}
	return r
}

// isPath says that a model is named by its place, not by a hub's name.
func isPath(name string) bool {
	return filepath.IsAbs(name) || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || strings.HasPrefix(name, "~/")
}

func (l *look) localModel(r *Result, dir string) *Result {
	bytes, n, err := l.sum(l.sys.path(dir))
	switch {
	case err != nil && os.IsNotExist(err):
		r.Status, r.Class = Fail, "config_invalid"
		r.What = fmt.Sprintf("the model's folder %s does not exist", dir)
		r.Do = "Correct the path, or mount what holds it."
	case err != nil:
		r.What = fmt.Sprintf("the model's folder %s: %s", dir, why(err))
	case n == 0:
		r.What = dir + " holds no weights of a form that is known"
	default:
		l.model.bytes = bytes
		r.Status, r.What = OK, fmt.Sprintf("%s: %s in %s", dir, gib(bytes), counted(n, "file"))
	}
	return r
}

func (l *look) notDownloaded(r *Result, name, dir string) *Result {
	l.model.missing = true
	r.Status, r.What = Warning, fmt.Sprintf("%s is not in %s: it will be downloaded, and how much that is is not known", name, dir)
	if yes(l.cmd.setting(profile.SettingOffline).value) {
		r.Status, r.Class = Fail, "hf_unreachable"
		r.What = fmt.Sprintf("%s is not in %s, and the start is told not to download it", name, dir)
		r.Do = "Download it first, or let the start download it."
	}
	return r
}

// yes says that a variable is switched on.
func yes(value string) bool {
	return slices.Contains([]string{"1", "on", "yes", "true"}, strings.ToLower(value))
}

// cacheOf is the folder of a downloaded model.
func (l *look) cacheOf(name string) (string, bool) {
	c := l.cmd.profile.Preflight.ModelCache
	if c == nil {
		return "", false
	}
	for _, d := range l.cmd.profile.Preflight.Directories {
		if d.Name != c.Directory {
			continue
		}
		dir, ok := l.cmd.directory(d)
		folder := strings.ReplaceAll(c.Folder, "{model}", strings.ReplaceAll(name, "/", c.Slash))
		return filepath.Join(dir, folder, c.Snapshots), ok
	}
	return "", false
}

// newest is the folder in dir that was changed last; "" for none.
func newest(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	best, at := "", int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && info.ModTime().UnixNano() >= at {
			best, at = filepath.Join(dir, e.Name()), info.ModTime().UnixNano()
		}
	}
	return best
}

// sum adds up the weights' files in a folder of the host's, of the first form that
// has any; links count as what they point to.
func (l *look) sum(dir string) (bytes uint64, files int, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0, err
	}
	c := l.cmd.profile.Preflight.ModelCache
	if c == nil {
		return 0, 0, nil
	}
	if !info.IsDir() {
		matches := func(glob string) bool { ok, _ := filepath.Match(glob, filepath.Base(dir)); return ok }
		if info.Mode().IsRegular() && slices.ContainsFunc(c.Files, matches) {
			return uint64(info.Size()), 1, nil // one file that is the whole model
		}
		return 0, 0, fmt.Errorf("%s is no folder", dir)
	}
	if _, err := os.ReadDir(dir); err != nil {
		return 0, 0, err
	}
	for _, glob := range c.Files {
		found, _ := filepath.Glob(filepath.Join(escapeGlob(dir), glob))
		for _, f := range found[:min(len(found), maxWeightFiles)] {
			info, err := os.Stat(f)
			if err != nil || !info.Mode().IsRegular() {
				return 0, 0, fmt.Errorf("%s: a file of the weights is missing or can't be read", filepath.Base(f))
			}
			bytes += uint64(info.Size())
			files++
		}
		if files > 0 {
			break
		}
	}
	return bytes, files, nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
