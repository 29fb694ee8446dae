package testkit

import "testing"

// Slow skips a test under -short. It marks a test that takes a second or more on an idle
// machine. The README's command and .ci/run run such tests; .ci/quick does not.
func Slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a second or more: run it without -short")
	}
}
