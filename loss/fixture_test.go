package loss_test

import (
	"testing"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/loss"
)

// TestFixtures compares the records that ranks exchange with those of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "record-%d.bin", Mark: "WLR%c", Number: 1, Remedy: "run the same build on all ranks",
		Write: func(t *testing.T) []byte { return wire(t) },
		Read:  func(b []byte) error { return new(loss.Record).UnmarshalBinary(b) },
	}.Test(t)
}
