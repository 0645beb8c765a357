package unit

import (
	"path"
	"testing"
)

// TestWider: systemd must list whatever path.Match takes.
func TestWider(t *testing.T) {
	for glob, want := range map[string]string{
		"llm.service":           "llm.service",
		"llm-*.service":         "llm-*.service",
		"llm-?@*.service":       "llm-?@*.service",
		"llm-[!a]*.service":     "llm-*",
		"llm-[^a].service":      "llm-*",
		`llm\\x2dbig@*.service`: `llm*`,
		"*[ab]":                 "**",
	} {
		if got := wider(glob); got != want {
			t.Errorf("%s: %s, want %s", glob, got, want)
		}
	}
	for _, unit := range []string{"llm-!.service", "llm-a.service"} {
		if ok, err := path.Match(wider("llm-[!a].service"), unit); !ok || err != nil {
			t.Errorf("%s is not listed: %v", unit, err)
		}
	}
}
