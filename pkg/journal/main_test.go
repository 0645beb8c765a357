package journal

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary be the reader child.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "journal-reader" {
		if err := RunReader(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
