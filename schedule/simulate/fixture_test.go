package simulate_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule/simulate"
)

// TestFixtures compares costs with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "costs-%d.json", Mark: "\"schema\": %d", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			var text bytes.Buffer
			require.NoError(t, simulate.WriteCosts(&text, someCosts()))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := simulate.ReadCosts(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
