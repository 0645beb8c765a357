package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/startupd/startupd/pkg/event"
	"github.com/startupd/startupd/pkg/history"
	"github.com/startupd/startupd/pkg/journal"
	"github.com/startupd/startupd/pkg/phases"
	"github.com/startupd/startupd/pkg/profile"
)

const (
	schemaFile = "../../../docs/explain.schema.json"
	corpusDir  = "../../../testdata/corpus"
)

// schemas returns the documented schema, as it is and with every object closed:
// a field that the page does not know is a fault of ours, not of a reader.
func schemas(t *testing.T) (open, closed *jsonschema.Schema) {
	t.Helper()
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	compile := func(edit func(any)) *jsonschema.Schema {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		edit(doc)
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("explain.schema.json", doc); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile("explain.schema.json")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return compile(func(any) {}), compile(closeObjects)
}

// closeObjects forbids fields that a schema's objects do not list.
func closeObjects(node any) {
	switch n := node.(type) {
	case map[string]any:
		for _, v := range n {
			closeObjects(v)
		}
		if _, ok := n["required"]; ok {
			n["additionalProperties"] = false
		}
	case []any:
		for _, v := range n {
			closeObjects(v)
		}
	}
}

// validate holds a report's JSON to schemas.
func validate(t *testing.T, name string, r *Report, schemas ...*jsonschema.Schema) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, s := range schemas {
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %#v\n%s", name, err, b)
		}
	}
}

// TestSchemaOfCorpus: what is printed for recorded starts is what the page says.
func TestSchemaOfCorpus(t *testing.T) {
	open, closed := schemas(t)
	list, err := os.ReadFile(filepath.Join(corpusDir, "CASES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := profiles(t)
	causes, findings := 0, 0
	for _, name := range strings.Fields(string(list)) {
		r := explainCase(t, name, known)
		validate(t, name, r, open, closed)
		for _, s := range r.Startups {
			findings += len(s.Findings)
			if s.RootCause != nil {
				causes++
			}
		}
	}
	if causes == 0 || findings == 0 {
		t.Errorf("%d root causes and %d findings prove nothing", causes, findings)
	}
}

func explainCase(t *testing.T, name string, known []*profile.Profile) *Report {
	t.Helper()
	var expect struct {
		Observed int `yaml:"observed_after_s"`
	}
	b, err := os.ReadFile(filepath.Join(corpusDir, name, "expect.yaml"))
	if err == nil {
		err = yaml.Unmarshal(b, &expect)
	}
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Open(filepath.Join(corpusDir, name, "log.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	opts := journal.FileOptions{Path: name, R: log, Now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
	r, err := Run(t.Context(), Options{
		Input: name, Profiles: known, Year: 2026, Elapsed: time.Duration(expect.Observed) * time.Second, Diff: true,
		Source: func(ctx context.Context, emit func(context.Context, []event.Event) error) error {
			return journal.ReadFile(ctx, opts, emit)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSchemaOfRenderCases holds what the corpus lacks to the page, too.
func TestSchemaOfRenderCases(t *testing.T) {
	open, closed := schemas(t)
	for name, all := range renderCases() {
		validate(t, name, reportOf(all), open, closed)
	}
	now, before := crashed(), good("0.15.0")
	now.WeightBytes, before.WeightBytes = ptr(uint64(2<<30)), ptr(uint64(1<<30))
	now.GPUPlateauBytes, before.GPUPlateauBytes = map[int]uint64{0: 2 << 30}, map[int]uint64{0: 1 << 30}
	now.Phases[1].Seconds = 600
	before.Arguments = map[string]string{"max_num_seqs": "4", "tensor_parallel_size": "4"}
	before.Versions = map[string]string{"torch": "2.8.0"}
	d, err := compare(t.Context(), target, []*phases.Startup{before}, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.WeightBytes == nil || len(d.GPUPlateauBytes) == 0 || len(d.Phases) == 0 || len(d.Arguments) == 0 || len(d.Packages) == 0 || len(d.Errors) == 0 {
		t.Errorf("the comparison is not full: %+v", d)
	}
	r := reportOf([]*phases.Startup{now})
	r.Startups[0].Diff = d
	validate(t, "diff", r, open, closed)
	r.Startups[0].Diff = ptr(history.NewSince(nil, nil))
	validate(t, "no diff", r, open, closed)
	validate(t, "empty", newReport("in.log", nil, span{}), open, closed)
}

// TestSchemaCanFail: the schema refuses what it should.
func TestSchemaCanFail(t *testing.T) {
	open, closed := schemas(t)
	for name, edit := range map[string]func(*Report){
		"outcome": func(r *Report) { r.Startups[0].Outcome = "asleep" },
		"verdict": func(r *Report) { r.Startups[0].Findings[0].Verdict = "guilty" },
		"line":    func(r *Report) { r.Startups[0].RootCause.Line = ptr(0) },
		"class":   func(r *Report) { r.Startups[0].RootCause.Class = "Not A Class" },
		"phase":   func(r *Report) { r.Startups[0].Phase = "lunch" },
	} {
		r := reportOf([]*phases.Startup{crashed()})
		edit(r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if open.Validate(doc) == nil {
			t.Errorf("a wrong %s is valid", name)
		}
	}
	doc := map[string]any{"schema": Schema, "target": "a", "engine": nil, "engine_version": nil, "model": nil, "startups": []any{}, "secret": 1}
	if err := open.Validate(doc); err != nil {
		t.Errorf("a new field breaks readers: %v", err)
	}
	if closed.Validate(doc) == nil {
		t.Error("a field that the page does not know passes")
	}
}

// TestNeverNaN: a number that is none is not known.
func TestNeverNaN(t *testing.T) {
	s := crashed()
	s.Phases[0].Seconds, s.Phases[1].Seconds = math.NaN(), math.Inf(1)
	r := reportOf([]*phases.Startup{s})
	for _, p := range r.Startups[0].Phases {
		if p.Seconds != nil {
			t.Errorf("%s took %v", p.Phase, *p.Seconds)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}
