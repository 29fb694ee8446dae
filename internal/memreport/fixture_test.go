package memreport_test

import (
	"testing"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestFixtures compares the summary of weir mem log --json with those of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "summary-%d.json", Mark: "\"schema\": %d", Number: 2,
		Write: func(t *testing.T) []byte {
			return testkit.Filled[memreport.Summary](t, new(memreport.Log).Summary().Schema)
		},
	}.Test(t)
}
