//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/startupd/startupd/test/nspawn"
)

// network is a container's: its loopback addresses are free of what this machine
// runs. Sockets and processes stay in the network in which they were made.
type network struct {
	init int
}

// enter runs f on a thread of the container's network, and returns with it.
func (n network) enter(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, as nobody else may have it
		done <- func() error {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.init))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("setns: %w", err)
			}
			return f()
		}()
	}()
	return <-done
}

// listen opens a port inside.
func (n network) listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	if err := n.enter(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return l
}

// client speaks HTTP with what listens inside.
func (n network) client() *http.Client {
	dial := func(ctx context.Context, proto, addr string) (conn net.Conn, err error) {
		err = n.enter(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, proto, addr)
			return err
		})
		return conn, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 10 * time.Second}
}

// start runs a program of this machine in the container's network until the test
// ends, and returns what it prints. Its end is an error.
func (n network) start(t *testing.T, args ...string) *nspawn.Output {
	t.Helper()
	out := &nspawn.Output{}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// Pdeathsig watches the thread: it lives as long as the program.
		_ = n.enter(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait()
			}
			return nil
		})
	}()
	select {
	case err := <-started:
		if err != nil {
			t.Fatal(err)
		}
	case <-ended:
		t.Fatalf("%s: the container's network can't be entered", args[0])
	}
	t.Cleanup(func() {
		select {
		case <-ended:
			t.Errorf("%s ended by itself", args[0])
		default:
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", args[0], out)
		}
	})
	return out
}
