package exporter_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/startupd/startupd/pkg/phases"
)

// TestPlateauOfAGPUThatIsGone is what the docs call absent: the unit's memory on it
// is not known.
func TestPlateauOfAGPUThatIsGone(t *testing.T) {
	target := loading()
	target.GPUMemory = map[int]uint64{0: 73 << 30}
	target.Startup.PlateauGPUs = []int{0, 1}
	want := `# HELP startupd_gpu_plateau 1 once the unit's memory on the GPU has risen to its plateau, else 0.
# TYPE startupd_gpu_plateau gauge
startupd_gpu_plateau{gpu="0",unit="loading.service"} 1
`
	snap := &phases.Snapshot{At: at(1), Targets: []phases.Target{target}}
	if err := testutil.CollectAndCompare(collector(snap, at(1)), strings.NewReader(want), "startupd_gpu_plateau"); err != nil {
		t.Error(err)
	}
}

func TestOtherXids(t *testing.T) {
	want := `# HELP startupd_gpu_xid_errors_total Error reports (Xid) of the NVIDIA driver in the kernel's log.
# TYPE startupd_gpu_xid_errors_total counter
startupd_gpu_xid_errors_total{gpu="0",xid="79"} 1
startupd_gpu_xid_errors_total{gpu="0",xid="other"} 7
`
	snap := &phases.Snapshot{At: at(1), Xids: []phases.Xid{{GPU: "0", Xid: phases.OtherXid, Count: 7}, {GPU: "0", Xid: 79, Count: 1}}}
	if err := testutil.CollectAndCompare(collector(snap, at(1)), strings.NewReader(want), "startupd_gpu_xid_errors_total"); err != nil {
		t.Error(err)
	}
}
