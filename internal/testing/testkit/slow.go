package testkit

import (
	"flag"
	"os"
	"testing"
)

// Slow skips a test under -short. It marks a test that takes a second or more on an idle
// machine. The README's command and .ci/run run such tests; .ci/quick does not.
func Slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a second or more: run it without -short")
	}
}

// RunWaiting runs the tests of a package and exits. Up to 16 parallel tests run at a time: they
// wait for clocks and processes rather than compute.
func RunWaiting(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
