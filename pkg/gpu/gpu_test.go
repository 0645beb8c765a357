//go:build gpu

package gpu

import (
	"strings"
	"testing"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/test/fakenvml"
)

// TestRealDriver runs on a host with an NVIDIA GPU: go test -tags gpu.
func TestRealDriver(t *testing.T) {
	b := begin(t, "", fakenvml.State{}, Options{})
	state := await(b, "first state", func(*event.SourceState) bool { return true })
	if !state.Up {
		t.Fatalf("state %+v, want samples", state)
	}
	for _, g := range b.awaitSample().GPUs {
		if g.Lost != "" {
			t.Errorf("GPU %d: %s", g.Index, g.Lost)
			continue
		}
		if !strings.HasPrefix(g.UUID, "GPU-") || g.Name == "" {
			t.Errorf("GPU %d: UUID %q, name %q", g.Index, g.UUID, g.Name)
		}
		if state.State != StateNotSupported && (g.TotalBytes == nil || g.UsedBytes == nil || *g.TotalBytes == 0 || *g.UsedBytes > *g.TotalBytes) {
			t.Errorf("GPU %d: used %v of %v bytes", g.Index, g.UsedBytes, g.TotalBytes)
		}
		if u := g.UtilizationRatio; u != nil && (*u < 0 || *u > 1) {
			t.Errorf("GPU %d: utilisation %v", g.Index, *u)
		}
	}
}
