package journal

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/event"
)

func TestParsePrecheck(t *testing.T) {
	for _, c := range []struct {
		line string
		want *event.UnitMessage
	}{
		{"startupd: preflight of llm.service: not fit [gpu_memory_occupied]: GPU 3 needs 85.5 GiB, 61.2 GiB free, 1 warning",
			&event.UnitMessage{Message: event.Precheck, Result: "gpu_memory_occupied", Text: "GPU 3 needs 85.5 GiB, 61.2 GiB free, 1 warning"}},
		{"startupd: preflight of llm.service: not fit [port_in_use] after waiting 1 min 0 s: 0.0.0.0:8000 is taken",
			&event.UnitMessage{Message: event.Precheck, Result: "port_in_use", Text: "after waiting 1 min 0 s: 0.0.0.0:8000 is taken"}},
		{"startupd: preflight of llm.service: not fit: something", &event.UnitMessage{Message: event.Precheck, Text: "something"}},
		{"startupd: preflight of llm.service: not fit [<b>]: x", &event.UnitMessage{Message: event.Precheck, Text: "[<b>]: x"}},
		{"startupd: preflight of llm.service: not fit", &event.UnitMessage{Message: event.Precheck}},
		{"startupd: preflight of llm.service: fit, 1 warning", nil},
		{"startupd: FAIL  GPU memory  GPU 3: not fit", nil},
		{"preflight of llm.service: not fit: x", nil},
	} {
		got, ok := parsePrecheck(c.line)
		if ok != (c.want != nil) {
			t.Errorf("%s: taken: %v", c.line, ok)
			continue
		}
		if diff := cmp.Diff(c.want, got); ok && diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.line, diff)
		}
	}
}

func TestMapperPrecheck(t *testing.T) {
	const bad = "startupd: preflight of llm.service: not fit [port_in_use]: 0.0.0.0:8000 is taken"
	for _, c := range []struct {
		name, unit, message string
		want                bool
	}{
		{"of a watched unit", unitA, bad, true},
		{"of another unit", "web.service", bad, false},
		{"a good verdict", unitA, "startupd: preflight of llm.service: fit", false},
		{"another line of ours", unitA, "startupd: FAIL  port  0.0.0.0:8000 is taken", false},
	} {
		got := mapEntries(t, []TargetSpec{{Unit: unitA}}, rec{5, []string{"_SYSTEMD_UNIT=" + c.unit, "_SYSTEMD_INVOCATION_ID=" + invA, "SYSLOG_IDENTIFIER=startupd", "MESSAGE=" + c.message}})
		if len(got) > 1 || (len(got) == 1) != c.want {
			t.Errorf("%s: %v", c.name, got)
			continue
		}
		if !c.want {
			continue
		}
		m, ok := got[0].Data.(*event.UnitMessage)
		if !ok || m.Message != event.Precheck || m.Result != "port_in_use" || m.Text != "0.0.0.0:8000 is taken" || m.Invocation != invA || got[0].Target != unitA {
			t.Errorf("%s: %+v", c.name, got[0])
		}
	}
}
