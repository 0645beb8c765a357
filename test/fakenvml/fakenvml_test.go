package fakenvml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestString(t *testing.T) {
	one, mig, yes, used := 1, 2, true, uint64(7)
	st := State{
		GPUs: []GPU{
			{UUID: "GPU-0", Name: "A B", UsedBytes: &used, UtilizationPercent: &one, MIG: &yes, MIGDevices: []int{2}, Processes: []Process{
				{PID: 5, UsedBytes: &used, MIG: &mig}, {PID: 6, Type: "graphics"},
			}},
			{Error: "GPU_IS_LOST"},
		},
		Fail: []Fail{{Function: "nvmlInit_v2", Code: "UNKNOWN"}},
		Hang: []Hang{{Function: "nvmlDeviceGetName", GPU: &one}},
	}
	want := `gpu 0 uuid="GPU-0" name="A B" used=7 total=- util=1 mig=1
mig 0 2
proc 0 pid=5 used=7 mig=2
proc 0 pid=6 used=- type=graphics
gpu 1 uuid="" name="" used=- total=- util=- error=GPU_IS_LOST
fail nvmlInit_v2 UNKNOWN
hang nvmlDeviceGetName 1
`
	if got := st.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, st := range []State{{GPUs: make([]GPU, 2)}, {GPUs: make([]GPU, 1)}} {
		if err := WriteFile(path, st); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != st.String() {
			t.Errorf("read back %q, %v", b, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := WriteFile(filepath.Join(path, "below", "a", "file"), State{}); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

func TestBuildSaysWhatFailed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not there")
	if _, err := Build(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want an error that names the directory", err)
	}
}
