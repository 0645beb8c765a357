package fitness

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
)

// journald is what journald.conf and its drop-ins say; a key that none of them
// sets is absent.
type journald map[string]string

// readJournald reads the configuration as journald does: the first main file, then
// the drop-ins of all directories in the order of their names, where a later
// directory's file hides one of the same name.
func readJournald(root string) (journald, error) {
	dirs := []string{"/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"}
	var files []string
	for _, d := range dirs {
		if f := filepath.Join(root, d, "journald.conf"); exists(f) {
			files = append(files, f)
			break
		}
	}
	dropIns := map[string]string{}
	for _, d := range slices.Backward(dirs) {
		// The pattern is valid: root is a directory of a test.
		found, _ := filepath.Glob(filepath.Join(root, d, "journald.conf.d", "*.conf"))
		for _, f := range found {
			dropIns[filepath.Base(f)] = f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		files = append(files, dropIns[name])
	}
	conf := journald{}
	for _, f := range files {
		if err := conf.read(f); err != nil {
			return nil, err
		}
	}
	return conf, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (j journald) read(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a link to /dev/null, or gone just now
	}
	if err != nil {
		return err
	}
	defer f.Close()
	opts, err := unit.DeserializeOptions(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, o := range opts {
		if o.Section != "Journal" {
			continue
		}
		if o.Value == "" {
			delete(j, o.Name)
			continue
		}
		j[o.Name] = o.Value
	}
	return nil
}

// The defaults of journald.
const (
	defaultInterval = 30 * time.Second
	defaultBurst    = 10000
	defaultLineMax  = 48 << 10
)

// rate is a limit of lines; a zero one is none.
type rate struct {
	interval time.Duration
	burst    uint64
}

func (r rate) off() bool { return r.interval == 0 || r.burst == 0 }

// perSecond is how many lines a second pass in the long run.
func (r rate) perSecond() float64 { return float64(r.burst) / r.interval.Seconds() }

func (r rate) String() string {
	if r.off() {
		return "no limit"
	}
	return fmt.Sprintf("%d lines in %s", r.burst, r.interval)
}

// rate is journald's own limit for units that have none of theirs.
func (j journald) rate() (rate, error) {
	r := rate{defaultInterval, defaultBurst}
	// An old name of the first one.
	for _, key := range []string{"RateLimitInterval", "RateLimitIntervalSec"} {
		if v, ok := j[key]; ok {
			d, err := parseSpan(v)
			if err != nil {
				return r, fmt.Errorf("journald.conf: %s=%s: %w", key, v, err)
			}
			r.interval = d
		}
	}
	if v, ok := j["RateLimitBurst"]; ok {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return r, fmt.Errorf("journald.conf: RateLimitBurst=%s is no number", v)
		}
		r.burst = n
	}
	return r, nil
}

// lineMax is the length, in bytes, at which journald cuts a line.
func (j journald) lineMax() (uint64, error) {
	v, ok := j["LineMax"]
	if !ok {
		return defaultLineMax, nil
	}
	return parseBytes(v)
}

// infinite stands for a time span without end.
const infinite = time.Duration(math.MaxInt64)

// spanUnits are systemd.time(7)'s units, as far as they are used here.
func spanUnits() map[string]time.Duration {
	const day = 24 * time.Hour
	return map[string]time.Duration{
		"": time.Second, "s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
		"ms": time.Millisecond, "msec": time.Millisecond, "us": time.Microsecond, "usec": time.Microsecond,
		"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
		"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
		"d": day, "day": day, "days": day, "w": 7 * day, "week": 7 * day, "weeks": 7 * day,
	}
}

var errSpan = errors.New("is no time span such as 30s or 1min 30s")

// parseSpan reads a time span as systemd writes it ("30", "1min 30s", "infinity").
func parseSpan(s string) (time.Duration, error) {
	if s == "infinity" {
		return infinite, nil
	}
	rest := strings.ReplaceAll(strings.TrimSpace(s), " ", "")
	if rest == "" {
		return 0, errSpan
	}
	units, sum := spanUnits(), 0.0
	for rest != "" {
		n := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if n < 0 {
			n = len(rest)
		}
		number, err := strconv.ParseFloat(rest[:n], 64)
		if err != nil {
			return 0, errSpan
		}
		rest = rest[n:]
		end := strings.IndexAny(rest, "0123456789")
		if end < 0 {
			end = len(rest)
		}
		u, ok := units[rest[:end]]
		if !ok {
			return 0, errSpan
		}
		sum, rest = sum+number*float64(u), rest[end:]
	}
	if sum > float64(infinite)/2 {
		return infinite, nil
	}
	return time.Duration(sum), nil
}

// parseBytes reads a size as systemd writes it ("48K", "4G"), to the base 1024.
func parseBytes(s string) (uint64, error) {
	digits := strings.TrimRight(strings.TrimSpace(s), "KMGTPEB")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no size such as 48K", s)
	}
	suffix := strings.TrimSuffix(s[len(digits):], "B")
	exp := strings.Index("KMGTPE", suffix)
	if suffix == "" {
		return uint64(n), nil
	}
	if exp < 0 || len(suffix) != 1 {
		return 0, fmt.Errorf("%q is no size such as 48K", s)
	}
	return uint64(n * math.Pow(1024, float64(exp+1))), nil
}
