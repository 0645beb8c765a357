package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"
	"time"

	"github.com/startupd/startupd/test/engine/scenario"
)

// TestReference keeps the embedded recording and its scenario together.
func TestReference(t *testing.T) {
	f, err := scenario.Load("../scenarios/reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := recording(f, time.Date(2026, 1, 31, 23, 36, 34, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../../internal/demo/recordings/reference.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	// The compressed bytes may differ with the compiler's version.
	if !bytes.Equal(unzip(t, got), unzip(t, want)) {
		t.Error("the recording is not that of the scenario: run go generate ./internal/demo")
	}
}

func unzip(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(z.Comment+"\n"), text...)
}
