package preflight

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/startupd/startupd/pkg/profile"
)

// listening is the state of a socket that listens (include/net/tcp_states.h).
const listening = "0A"

// maxProcesses bounds the processes whose open files are searched.
const maxProcesses = 65536

// port checks that nobody listens where the engine will.
func (l *look) port() *Result {
	p := l.cmd.setting(profile.SettingPort)
	if p.from == "" || l.cmd.setting(profile.SettingSocket).from != "" || l.cmd.setting(profile.SettingNoPort).from != "" {
		return nil
	}
	r := &Result{Check: CheckPort, Status: Unknown}
	value, host := p.value, l.cmd.setting(profile.SettingHost).value
	if k := l.cmd.container; k != nil && !k.hostNet {
		mapped, ok := k.ports[value]
		if !ok {
			r.What = fmt.Sprintf("port %s is the container's own: which of the host's it gets is not known", value)
			return r
		}
		// Where the engine listens inside the container is another matter.
		value, host = mapped, cmp.Or(k.addresses[value], "0.0.0.0")
	}
	port, err := strconv.ParseUint(value, 10, 16)
	if err != nil || port == 0 {
		r.What = fmt.Sprintf("port %q (%s) is no number from 1 to 65535", value, p.from)
		return r
	}
	if l.unit != nil && l.unit.Limited != "" {
		r.What = fmt.Sprintf("port %d: %s, and its ports are not looked at", port, l.unit.Limited)
		return r
	}
	line, err := l.listener(host, port)
	switch {
	case err != nil:
		r.What = fmt.Sprintf("port %d: can't read the host's sockets: %v", port, err)
	case line == nil:
		r.Status, r.What = OK, fmt.Sprintf("%s is free", net.JoinHostPort(host, value))
	default:
		l.taken(r, line, port)
		if address(host) == nil && !line.addr.IsUnspecified() && r.Status == Fail {
			r.Status = Warning
			r.What += fmt.Sprintf(", and whether %s stands for that address is not known", host)
		}
	}
	return r
}

// address is what the engine listens at; nil for a name that only a resolver
// knows.
func address(host string) net.IP {
	switch host {
	case "":
		return net.IPv4zero
	case "localhost":
		return net.IPv4(127, 0, 0, 1)
	}
	return net.ParseIP(host)
}

// socket is a socket that listens.
type socket struct {
	addr       net.IP
	uid, inode uint64
}

// listener finds a socket that listens on a port at an address that clashes with
// host's.
func (l *look) listener(host string, port uint64) (*socket, error) {
	want := address(host)
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(l.sys.proc("net", name))
		if name == "tcp6" && errors.Is(err, fs.ErrNotExist) {
			break // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		s, err := findListener(f, port, want)
		f.Close()
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, nil
}

// findListener reads /proc/net/tcp or tcp6 (proc_net_tcp(5)), whose addresses are
// words of the machine's byte order in hex:
//
//	sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
//	0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 12345 1 ...
func findListener(r io.Reader, port uint64, want net.IP) (*socket, error) {
	lines := bufio.NewScanner(r)
	for first := true; lines.Scan(); first = false {
		f := strings.Fields(lines.Text())
		if first {
			if len(f) < 2 || f[0] != "sl" {
				return nil, errors.New("it is no table of sockets")
			}
			continue
		}
		if len(f) < 10 {
			return nil, fmt.Errorf("a line has %d fields", len(f))
		}
		address, hexPort, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(hexPort, 16, 16); f[3] != listening || err != nil || n != port {
			continue
		}
		ip, err := parseAddress(address)
		if err != nil {
			return nil, err
		}
		if !clashes(want, ip) {
			continue
		}
		s := &socket{addr: ip}
		if s.uid, err = strconv.ParseUint(f[7], 10, 32); err != nil {
			return nil, err
		}
		if s.inode, err = strconv.ParseUint(f[9], 10, 64); err != nil {
			return nil, err
		}
		return s, nil
	}
	return nil, lines.Err()
}

func parseAddress(text string) (net.IP, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != net.IPv4len && len(b) != net.IPv6len {
		return nil, fmt.Errorf("%q is no address", text)
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	return net.IP(b), nil
}

// clashes says that two addresses can't have one port: they are the same, or one
// stands for all, where :: stands for those of IPv4 too. A name that is no address
// may stand for any.
func clashes(want, have net.IP) bool {
	if want == nil {
		return true
	}
	if four := want.To4() != nil; four != (have.To4() != nil) {
		six := have
		if !four {
			six = want
		}
		return six.IsUnspecified()
	}
	return want.IsUnspecified() || have.IsUnspecified() || want.Equal(have)
}

// taken says who has the port.
func (l *look) taken(r *Result, s *socket, port uint64) {
	at := net.JoinHostPort(s.addr.String(), strconv.FormatUint(port, 10))
	h := Holder{PID: l.owner(s.inode), User: l.sys.UserName(strconv.FormatUint(s.uid, 10))}
	if h.PID != 0 {
		l.process(&h)
		h.Role = l.role(&h)
	}
	r.Holders = []Holder{h}
	switch {
	case h.Role == RoleSelf:
		r.Status, r.What = OK, at+" is the running unit's own: it is free once the unit has stopped"
		r.Holders = nil
	case h.PID == 0:
		r.Status, r.passing, r.Class = Fail, true, "port_in_use"
		r.What = fmt.Sprintf("%s is taken by a process of user %s that can't be seen from here", at, h.User)
		r.Do = fmt.Sprintf("Run this as root to see who it is (ss -ltnp 'sport = :%d'), or choose another port.", port)
		r.Holders = nil
	default:
		r.Status, r.passing, r.Class = Fail, true, "port_in_use"
		r.What = at + " is taken"
		r.Do = "Stop its holder, or choose another port."
	}
}

// owner finds the process that has a socket open; 0 where no process that may be
// looked into has it.
func (l *look) owner(inode uint64) int {
	want := "socket:[" + strconv.FormatUint(inode, 10) + "]"
	entries, err := os.ReadDir(l.sys.ProcRoot)
	if err != nil {
		return 0
	}
	for _, e := range entries[:min(len(entries), maxProcesses)] {
		pid, ok := number(e.Name())
		if !ok {
			continue
		}
		dir := l.sys.proc(e.Name(), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && strings.HasPrefix(to, want) {
				return pid
			}
		}
	}
	return 0
}
