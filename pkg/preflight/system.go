package preflight

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// System is the host as it is looked at. Its zero value is no host: use Host.
type System struct {
	// Root is put before every path but /proc's; "" is none.
	Root string
	// ProcRoot is where procfs is mounted.
	ProcRoot string
	// Statfs tells the room of the file system that holds a path.
	Statfs func(path string) (Space, error)
	// Home is a user's home directory by name; "" is the present user's.
	Home func(name string) (string, error)
	// UserName is a user's name by ID; the ID itself when it has none.
	UserName func(uid string) string
	// UID is the user that looks.
	UID int
	// Machine is the host's architecture as uname has it.
	Machine string
}

// Space is the room of a file system. Sizes are in bytes.
type Space struct {
	Size, Free uint64
	// Files and FreeFiles count inodes; Files is 0 where the file system has no
	// such limit.
	Files, FreeFiles uint64
	ReadOnly         bool
}

// Host is the host that this process runs on.
func Host() System {
	return System{
		ProcRoot: "/proc", Statfs: statfs, UID: os.Getuid(), Machine: machine(),
		Home: func(name string) (string, error) {
			if name == "" {
				return os.UserHomeDir()
			}
			find := user.Lookup
			if strings.Trim(name, "0123456789") == "" {
				find = user.LookupId
			}
			u, err := find(name)
			if err != nil {
				return "", err
			}
			return u.HomeDir, nil
		},
		UserName: func(uid string) string {
			if u, err := user.LookupId(uid); err == nil {
				return u.Username
			}
			return uid
		},
	}
}

func machine() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Machine[:])
}

// statfs counts what an unprivileged user may use.
func statfs(path string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Space{}, err
	}
	unit := uint64(s.Bsize)
	return Space{
		Size: s.Blocks * unit, Free: s.Bavail * unit, Files: s.Files, FreeFiles: s.Ffree, ReadOnly: s.Flags&unix.ST_RDONLY != 0,
	}, nil
}

func (s *System) path(p string) string { return filepath.Join(s.Root, p) }

func (s *System) proc(parts ...string) string {
	return filepath.Join(append([]string{s.ProcRoot}, parts...)...)
}

// errTooBig is what a file is that nobody would write by hand.
var errTooBig = errors.New("is too big")

// read returns a regular file of at most limit bytes. Opening never blocks: a
// FIFO that stands in its place is refused.
func (s *System) read(path string, limit int64) ([]byte, error) {
	return readFile(s.path(s.resolve(path)), limit)
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s %w: more than %d bytes", path, errTooBig, limit)
	}
	return b, nil
}

// head returns the first n bytes of a file.
func (s *System) head(path string, n int64) ([]byte, error) {
	f, err := os.OpenFile(s.path(s.resolve(path)), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no regular file", path))
	}
	return io.ReadAll(io.LimitReader(f, n))
}

// exists says that a path of this process's own, such as /proc's, is there.
func (s *System) exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (s *System) isFile(path string) bool {
	info, err := os.Stat(s.path(s.resolve(path)))
	return err == nil && info.Mode().IsRegular()
}

func (s *System) isDir(path string) bool {
	info, err := os.Stat(s.path(s.resolve(path)))
	return err == nil && info.IsDir()
}

// maxLinks bounds a chain of symbolic links, as the kernel does.
const maxLinks = 40

// resolve follows the symbolic links that path itself is, within Root.
func (s *System) resolve(path string) string {
	for range maxLinks {
		to, err := os.Readlink(s.path(path))
		if err != nil {
			return path
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = filepath.Clean(to)
	}
	return path
}

// lookPath finds a program as execvp does, with the given PATH.
func (s *System) lookPath(name, path, dir string) string {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name
	}
	for _, d := range filepath.SplitList(path) {
		if p := filepath.Join(d, name); filepath.IsAbs(p) && s.isFile(p) {
			return p
		}
	}
	return ""
}

// why shortens the error of a file for people.
func why(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "no right to read it"
	case errors.Is(err, fs.ErrNotExist):
		return "it does not exist"
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// number reads a whole number that is not negative.
func number(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return n, err == nil && n >= 0
}
