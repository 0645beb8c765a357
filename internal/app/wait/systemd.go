package wait

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"sync"

	sd "github.com/coreos/go-systemd/v22/dbus"
)

// Systemd asks the service manager of this host. It is safe for concurrent use.
type Systemd struct {
	// Links holds systemd's invocation links; "" is /run/systemd/units.
	Links string

	mu   sync.Mutex // guards conn
	conn *sd.Conn
}

// Invocation is the present invocation of a unit that runs, which anybody may
// read; "" when it does not run, or when it can't be told.
func (s *Systemd) Invocation(unit string) string {
	dir := s.Links
	if dir == "" {
		dir = "/run/systemd/units"
	}
	id, err := os.Readlink(filepath.Join(dir, "invocation:"+unit))
	if err != nil {
		return ""
	}
	return id
}

// Close ends the connection to the bus, unless a question is still open: that one
// ends with the process.
func (s *Systemd) Close() {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.drop()
}

func (s *Systemd) drop() {
	if s.conn != nil {
		s.conn.Close()
	}
	s.conn = nil
}

// Unit tells what systemd knows of a unit. Without a bus that answers it is the
// invocation alone.
func (s *Systemd) Unit(ctx context.Context, unit string) Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	only := Unit{Invocation: s.Invocation(unit)}
	if s.conn == nil || !s.conn.Connected() {
		s.drop()
		// The connection outlives this question.
		conn, err := dial(ctx)
		if err != nil {
			return only
		}
		s.conn = conn
	}
	// The job first: one that begins between the two shows in the state.
	jobs, err := s.conn.ListJobsContext(ctx)
	if err != nil {
		return only
	}
	props, err := s.conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return only
	}
	text := func(name string) string {
		v, _ := props[name].(string)
		return v
	}
	load := text("LoadState")
	u := Unit{
		Known: true, Name: text("Id"), Loaded: load != "" && load != "not-found", ActiveState: text("ActiveState"), SubState: text("SubState"),
		Result: text("Result"), Status: slices.Contains([]string{"all", "exec"}, text("NotifyAccess")),
	}
	if id, _ := props["InvocationID"].([]byte); slices.ContainsFunc(id, func(b byte) bool { return b != 0 }) {
		u.Invocation = hex.EncodeToString(id)
	}
	for _, j := range jobs {
		if j.Unit == u.Name || j.Unit == unit {
			u.Job = j.JobType
		}
	}
	return u
}

// dial connects within ctx. A bus that accepts and says nothing is left behind.
func dial(ctx context.Context) (*sd.Conn, error) {
	type answer struct {
		conn *sd.Conn
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		conn, err := sd.NewWithContext(context.WithoutCancel(ctx))
		got <- answer{conn, err}
	}()
	select {
	case a := <-got:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
