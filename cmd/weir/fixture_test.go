package main

import (
	"testing"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestFixtures compares the output of weir slots --against --json with those of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "slots-against-%d.json", Mark: "\"schema\": %d", Number: 1,
		Write: func(t *testing.T) []byte { return testkit.Filled[slotsDiff](t, 1) },
	}.Test(t)
}
