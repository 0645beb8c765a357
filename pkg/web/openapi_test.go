package web

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/triage"
	"github.com/startupd/startupd/pkg/web/api"
)

func openAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// sseEvents are the event types and their schemas as the document names them.
func sseEvents(t *testing.T, doc *openapi3.T) map[string]string {
	t.Helper()
	raw, err := json.Marshal(doc.Paths.Value("/api/v1/events").Get.Extensions["x-sse-events"])
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	if err := json.Unmarshal(raw, &out); err != nil || len(out) == 0 {
		t.Fatalf("x-sse-events %s: %v", raw, err)
	}
	return out
}

func TestOpenAPIRoutes(t *testing.T) {
	doc := openAPI(t)
	want := slices.Sorted(maps.Keys(newWorld(t, nil).web.routes()))
	got := slices.Sorted(maps.Keys(doc.Paths.Map()))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths of docs/openapi.yaml: %s", diff)
	}
}

// TestOpenAPIFields compares the schemas with the documents, both ways.
func TestOpenAPIFields(t *testing.T) {
	doc := openAPI(t)
	types := map[string]reflect.Type{}
	for _, root := range []any{
		api.Status{}, api.Startups{}, api.Startup{}, api.Memory{}, api.Transition{}, api.Told{}, api.Reset{}, api.Problem{}, Readiness{}, AllReadiness{},
	} {
		structs(reflect.TypeOf(root), types)
	}
	for name, typ := range types {
		ref := doc.Components.Schemas[name]
		if ref == nil {
			t.Errorf("no schema %s", name)
			continue
		}
		var fields, required []string
		for i := range typ.NumField() {
			tag := typ.Field(i).Tag.Get("json")
			field, options, _ := strings.Cut(tag, ",")
			fields = append(fields, field)
			if options == "" {
				required = append(required, field)
			}
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(fields)), slices.Sorted(maps.Keys(ref.Value.Properties))); diff != "" {
			t.Errorf("fields of %s (- document, + docs/openapi.yaml): %s", name, diff)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(required)), slices.Sorted(slices.Values(ref.Value.Required))); diff != "" {
			t.Errorf("fields of %s that are always there: %s", name, diff)
		}
	}
	for name, ref := range doc.Components.Schemas {
		if _, ok := types[name]; !ok && len(ref.Value.Properties) > 0 {
			t.Errorf("nothing is served of schema %s", name)
		}
	}
}

// structs collects a document's types by name.
func structs(t reflect.Type, into map[string]reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		structs(t.Elem(), into)
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() || into[t.Name()] != nil {
			return
		}
		into[t.Name()] = t
		for i := range t.NumField() {
			structs(t.Field(i).Type, into)
		}
	}
}

// filled is a startup that tells everything.
func filled() *phases.Startup {
	no, n, part, weights := false, 2, 0.25, uint64(70*gib)
	s := try("0123")
	s.Step, s.StepBegan, s.Progress, s.ProgressNote, s.ExpectedServing = "weights", at(1), &part, "1/4", at(time.Minute)
	s.Slow, s.AttachedLate = true, true
	s.Engine = phases.Engine{Name: "engine", Version: "1.0", Model: "example/model", Host: "127.0.0.1", Port: 8000}
	s.Phases = append(s.Phases, phases.Phase{Phase: phases.Load, Entered: at(1), Evidence: phases.Evidence{Source: "log", Rule: "r", Text: "x", Cursor: "c", LineNo: 3, Provisional: true}})
	s.Steps = []phases.Step{{Phase: phases.Load, Step: "weights", Entered: at(1), Seconds: 1}}
	s.RootCause = &triage.RootCause{
		Class: "oom", Exception: "E", Message: "m", Process: "p", Rule: "r", Line: 1, Cursor: "c", At: at(1), Fingerprint: "v1:1", Remediation: "do",
		Retry: &no, DiedIn: "load", ExitStatus: "exited, status 1", NotArrived: []string{"rank 1"}, LastLines: map[string]string{"p": "l"}, Provisional: true,
	}
	s.Findings = []triage.Finding{{
		Verdict: triage.Cause, Class: "oom", Exception: "E", Message: "m", Process: "p", Processes: []string{"p"}, Rule: "r", Cursor: "c", At: at(1),
		Count: 1, Fingerprint: "v1:1", New: true, Good: &n, Bad: &n, AfterReady: true,
	}}
	s.Errors, s.NewErrors = map[phases.ErrorKey]int{{Class: "oom", Verdict: triage.Cause}: 1}, &n
	s.Gaps = []phases.Gap{{Kind: "dropped", Lines: 3, Detail: "d", At: at(1)}}
	s.Arguments, s.Versions = map[string]string{"dtype": "auto"}, map[string]string{"torch": "2.9"}
	s.WeightBytes, s.GPUPlateauBytes, s.LastLine = &weights, map[int]uint64{0: gib}, map[string]string{"p": "l"}
	s.Outcome, s.Ended, s.Reason = phases.OutcomeServing, at(2), "ready"
	s.ServingEnded, s.ServingEndReason, s.Exited, s.Final = at(3), "exited", true, true
	return s
}

// everything is a snapshot that tells everything.
func everything() *phases.Snapshot {
	yes, n, lag, ratio := true, 2, time.Second, 0.5
	last := filled()
	last.Invocation, last.Outcome = "0124", phases.OutcomeFailed
	return &phases.Snapshot{
		At: at(0),
		Targets: []phases.Target{
			{
				Name: "all.service", State: phases.Serving, Since: at(0), Startup: filled(), Last: last, Failure: last.RootCause,
				LastOutcome: phases.OutcomeServing, RestartLoop: true, Restarts: &n, Ready: phases.Ready{Log: &yes, Port: &yes, Health: &yes},
				Disagreement: "d", GPUMemory: map[int]uint64{0: gib}, MainPID: 7, ControlGroup: "/g", JournalLag: &lag,
				Counters: phases.Counters{Lines: 3, Stale: 2, Unmatched: 1},
			},
			{Name: "none.service", State: phases.Unknown},
			{Name: "up.service", State: phases.Serving, Startup: ended("0200", phases.OutcomeServing)},
		},
		GPUs: []phases.GPU{{
			Index: 0, UUID: "u", Name: "n", UsedBytes: p(gib), TotalBytes: p(gib), UtilizationRatio: &ratio, ForeignBytes: p(1), UnattributedBytes: p(1), Lost: "l",
		}},
		Xids:    []phases.Xid{{GPU: "0", Xid: 79, Count: 1, Last: at(0)}},
		Sources: []phases.Source{{Source: "journal", Up: true, State: "up", Restarts: 1, Since: at(0)}, {Source: "health", Target: "all.service", State: "down", Reason: "r"}},
	}
}

// TestOpenAPIResponses asks for every documented answer, and holds each to its
// schema.
func TestOpenAPIResponses(t *testing.T) {
	doc := openAPI(t)
	k := &kept{records: map[string][]history.Record{"old.service": {record("old.service", "0777", -time.Hour, phases.OutcomeFailed)}}}
	w := serverOf(t, everything(), k)
	w.hub.memory.record(everything())
	none := serverOf(t, &phases.Snapshot{At: at(0)}, nil)
	full := newWorld(t, func(h *HubOptions, _ *Options) { h.MaxStreams = -1 })
	asked := map[string]bool{}
	for _, tt := range []struct {
		of           *world
		method, path string
		route        string
	}{
		{w, "GET", "/api/v1/status", "/api/v1/status"},
		{w, "GET", "/api/v1/status?unit=all&unit=none", "/api/v1/status"},
		{none, "GET", "/api/v1/status", "/api/v1/status"},
		{w, "GET", "/api/v1/status?unit=x", "/api/v1/status"},
		{w, "POST", "/api/v1/status", "/api/v1/status"},
		{w, "GET", "/api/v1/startups", "/api/v1/startups"},
		{none, "GET", "/api/v1/startups", "/api/v1/startups"},
		{w, "GET", "/api/v1/startups?limit=-", "/api/v1/startups"},
		{w, "GET", "/api/v1/startups?unit=x", "/api/v1/startups"},
		{w, "POST", "/api/v1/startups", "/api/v1/startups"},
		{w, "GET", "/api/v1/startups/0123", "/api/v1/startups/{invocation}"},
		{w, "GET", "/api/v1/startups/0124", "/api/v1/startups/{invocation}"},
		{w, "GET", "/api/v1/startups/0777", "/api/v1/startups/{invocation}"},
		{w, "GET", "/api/v1/startups/012", "/api/v1/startups/{invocation}"},
		{w, "GET", "/api/v1/startups/0123?generation=x", "/api/v1/startups/{invocation}"},
		{w, "GET", "/api/v1/startups/9", "/api/v1/startups/{invocation}"},
		{w, "POST", "/api/v1/startups/9", "/api/v1/startups/{invocation}"},
		{w, "GET", "/api/v1/memory?unit=all", "/api/v1/memory"},
		{w, "GET", "/api/v1/memory?unit=none", "/api/v1/memory"},
		{w, "GET", "/api/v1/memory", "/api/v1/memory"},
		{w, "GET", "/api/v1/memory?unit=x", "/api/v1/memory"},
		{w, "POST", "/api/v1/memory", "/api/v1/memory"},
		{w, "GET", "/api/v1/events?unit=x", "/api/v1/events"},
		{w, "POST", "/api/v1/events", "/api/v1/events"},
		{full, "GET", "/api/v1/events", "/api/v1/events"},
		{w, "GET", "/startupz", "/startupz"},
		{none, "GET", "/startupz", "/startupz"},
		{w, "GET", "/startupz?unit=all", "/startupz"},
		{w, "GET", "/startupz?unit=none", "/startupz"},
		{w, "GET", "/startupz?unit=x", "/startupz"},
		{w, "POST", "/startupz", "/startupz"},
	} {
		r := httptest.NewRecorder()
		tt.of.web.ServeHTTP(r, httptest.NewRequest(tt.method, "http://localhost"+tt.path, nil))
		asked[tt.route+" "+strconv.Itoa(r.Code)] = true
		resp := doc.Paths.Value(tt.route).Get.Responses.Status(r.Code)
		if resp == nil {
			t.Errorf("%s %s: %d is not documented", tt.method, tt.path, r.Code)
			continue
		}
		var body any
		if err := json.Unmarshal(r.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %v", tt.path, err)
		}
		if err := resp.Value.Content.Get(r.Header().Get("Content-Type")).Schema.Value.VisitJSON(body); err != nil {
			t.Errorf("%s %s: %d: %v", tt.method, tt.path, r.Code, err)
		}
	}
	asked["/api/v1/events 200"] = true // TestOpenAPIEvents
	for route, item := range doc.Paths.Map() {
		for code := range item.Get.Responses.Map() {
			if !asked[route+" "+code] {
				t.Errorf("nothing has answered %s with %s", route, code)
			}
		}
	}
}

// TestOpenAPIEvents makes every type of event, and holds each to its schema.
func TestOpenAPIEvents(t *testing.T) {
	doc := openAPI(t)
	documented := sseEvents(t, doc)
	seen := map[string]bool{}
	check := func(t *testing.T, m message) {
		name, ok := documented[m.kind]
		if !ok {
			t.Errorf("event %q is not documented", m.kind)
			return
		}
		seen[m.kind] = true
		var data any
		m.into(t, &data)
		if err := doc.Components.Schemas[name].Value.VisitJSON(data); err != nil {
			t.Errorf("%s: %v", m.kind, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dial, stop := w.serve()
		defer stop()
		c := connect(t, dial(), "", "no ID of ours")
		defer c.close()
		check(t, c.want(api.EventReset))
		check(t, c.want(api.EventSnapshot))
		w.move("b.service", phases.Unknown, phases.Spawn)
		stalled := try("02")
		stalled.Stalled, stalled.StalledReason = true, "silent"
		w.snap.Store(everything())
		w.look()
		w.publish(phases.Target{Name: "b.service", State: phases.Spawn, Startup: stalled})
		w.look()
		w.hub.update(time.Now())
		for !seen[api.EventUpdate] {
			m, ok := c.next()
			if !ok || m.comment {
				t.Fatal("no update comes")
			}
			check(t, m)
		}
		for range 3 * ringEvents {
			w.move("b.service", phases.Unknown, phases.Spawn)
		}
		for {
			m, ok := c.next()
			if !ok {
				break
			}
			check(t, m)
		}
	})
	for kind := range documented {
		if !seen[kind] {
			t.Errorf("no event %s came", kind)
		}
	}
}

func TestOpenAPICanFail(t *testing.T) {
	doc := openAPI(t)
	for name, bad := range map[string]string{
		"Status":     `{"schema":"startupd.status/v2","units":[],"gpus":null,"sources":[]}`,
		"Startup":    `{"unit":"a"}`,
		"Transition": `{"unit":"a","generation":0,"from":"nowhere","to":"spawn"}`,
		"Memory":     `{"schema":"startupd.memory/v1","unit":"a","generation":0,"at":[],"gpus":[{"gpu":0,"used_bytes":[],"unit_bytes":[-1],"foreign_bytes":[]}]}`,
		"Problem":    `{"schema":"startupd.error/v1","error":"x"}`,
	} {
		var data any
		if err := json.Unmarshal([]byte(bad), &data); err != nil {
			t.Fatal(err)
		}
		if doc.Components.Schemas[name].Value.VisitJSON(data) == nil {
			t.Errorf("schema %s takes %s", name, bad)
		}
	}
}
