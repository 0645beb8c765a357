package wait

import "testing"

func TestWhich(t *testing.T) {
	for _, tt := range []struct {
		name string
		unit Unit
		want answer
	}{
		{"runs", Unit{ActiveState: "active", SubState: "running"}, present},
		{"starts", Unit{ActiveState: "activating", SubState: "start-post", Job: "start"}, present},
		{"starts, its job is done", Unit{ActiveState: "activating", SubState: "start"}, present},
		{"reloads", Unit{ActiveState: "reloading"}, present},
		{"is to be restarted", Unit{ActiveState: "active", Job: "restart"}, next},
		{"stops for a restart", Unit{ActiveState: "deactivating", Job: "restart"}, next},
		{"between the two", Unit{ActiveState: "inactive", Job: "start"}, next},
		{"has failed and is started", Unit{ActiveState: "failed", Job: "start"}, next},
		{"is stopped", Unit{ActiveState: "deactivating", Job: "stop"}, next},
		{"is stopped while it starts", Unit{ActiveState: "activating", Job: "stop"}, next},
		{"ends by itself", Unit{ActiveState: "deactivating", SubState: "stop-sigterm"}, present},
		{"waits for its restart", Unit{ActiveState: "activating", SubState: "auto-restart"}, present},
		{"waits for its restart, and is started", Unit{ActiveState: "activating", SubState: "auto-restart", Job: "start"}, next},
		{"has failed", Unit{ActiveState: "failed"}, over},
		{"does not run", Unit{ActiveState: "inactive"}, idle},
	} {
		tt.unit.Known, tt.unit.Loaded, tt.unit.Invocation = true, true, "a"
		if got := tt.unit.which(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name string
		unit Unit
		want answer
	}{
		{"no such unit", Unit{Known: true}, none},
		{"nobody to ask, and it runs", Unit{Invocation: "a"}, present},
		{"nobody to ask", Unit{}, unsure},
	} {
		if got := tt.unit.which(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
