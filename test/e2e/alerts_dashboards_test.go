//go:build e2e

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/startupd/startupd/tools/dashboards/board"
)

const dashboardsDir = "../../deploy/grafana/dashboards"

// updateDocs is not -update: what the document shows differs by run.
var updateDocs = flag.Bool("update-docs", false, "write the dashboards' queries and answers into docs/dashboards.md")

// moment is a time of the run at which the dashboards are looked at, that of one
// unit with the unit given.
type moment struct {
	name, unit string
	at         time.Time
}

// look notes such a time, once both daemons were scraped after it had come.
func (s *alerting) look(t *testing.T, name, unit string) {
	t.Helper()
	s.untilAnswer(t, 10*time.Second, fmt.Sprintf(`min(timestamp(startupd_build_info)) > %.3f`, float64(time.Now().UnixMilli())/1000))
	s.moments = append(s.moments, moment{name, unit, time.Now()})
}

// testDashboards asks Prometheus what the delivered dashboards ask: each query has
// an answer at every one of the moments, except those that are marked as empty on
// purpose.
func (s *alerting) testDashboards(t *testing.T) {
	delivered := map[string]map[string]bool{}
	for _, d := range board.All() {
		delivered[d.UID] = expressions(t, d.UID)
	}
	var queries []board.Located
	with, without := map[board.Located][]string{}, map[board.Located][]string{}
	for _, m := range s.moments {
		answers, err := board.Ask(t.Context(), s.prometheus, m.at, board.Everything("startupd", address, m.unit, "15m", "1m"))
		if err != nil {
			t.Fatal(err)
		}
		if *updateDocs && m.name == "serving" {
			writeDocs(t, answers)
		}
		for _, a := range answers {
			if n := known(a.Series); n > 0 {
				with[a.Located] = append(with[a.Located], fmt.Sprintf("%s %d", m.name, n))
			} else {
				without[a.Located] = append(without[a.Located], m.name)
			}
			if !slices.Contains(queries, a.Located) {
				queries = append(queries, a.Located)
			}
		}
	}
	for _, q := range queries {
		if !delivered[q.Dashboard][q.Expr] {
			t.Errorf("%s / %s %s is not in the delivered JSON: %s", q.Dashboard, q.Panel, q.RefID, q.Expr)
		}
		checkQuery(t, q, with[q], without[q])
	}
	t.Logf("%d queries at %d moments", len(queries), len(s.moments))
}

// checkQuery judges a query by the moments at which it had an answer, and had none.
func checkQuery(t *testing.T, q board.Located, with, without []string) {
	t.Helper()
	where := strings.TrimSpace(strings.Join([]string{q.Dashboard, "/", q.Panel, q.RefID}, " "))
	switch {
	case q.EmptyOnPurpose == "" && without != nil:
		t.Errorf("%s: no answer when %s: %s", where, strings.Join(without, ", "), q.Expr)
	case q.EmptyOnPurpose != "" && without == nil:
		// Not wrong: the reason may be none of this run's.
		t.Logf("%s: marked as empty on purpose (%s), and always has an answer: %s", where, q.EmptyOnPurpose, strings.Join(with, ", "))
	case q.EmptyOnPurpose != "" && with == nil:
		t.Logf("%s: never had an answer: %s", where, q.EmptyOnPurpose)
	}
}

// known counts the series whose value is a number.
func known(series []*model.Sample) int {
	n := 0
	for _, s := range series {
		if !math.IsNaN(float64(s.Value)) {
			n++
		}
	}
	return n
}

// writeDocs puts the answers into the document.
func writeDocs(t *testing.T, answers []board.Answer) {
	t.Helper()
	const path = "../../docs/dashboards.md"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := board.Into(string(old), answers)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// expressions are all queries of a delivered dashboard.
func expressions(t *testing.T, uid string) map[string]bool {
	t.Helper()
	name := strings.TrimPrefix(uid, "startupd-") + ".json"
	text, err := os.ReadFile(dashboardsDir + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	found := map[string]bool{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, below := range v {
				if expr, ok := below.(string); ok && key == "expr" {
					found[expr] = true
				}
				walk(below)
			}
		case []any:
			for _, below := range v {
				walk(below)
			}
		}
	}
	walk(doc)
	return found
}
