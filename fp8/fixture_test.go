package fp8_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestFixtures compares a state in a checkpoint with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	recipe := fp8.DelayedScaling{Format: fp8.Hybrid, History: 3}
	testkit.Format{
		Name: "state-%d.bin", Mark: "weirfp8%c", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			s := state(t, recipe)
			for _, amax := range []float32{1.5, 448} {
				_, err := s.End(measured(amax, 2*amax, 3*amax))
				require.NoError(t, err)
			}
			b, err := s.MarshalBinary()
			require.NoError(t, err)
			return b
		},
		Read: func(b []byte) error { return state(t, recipe).UnmarshalBinary(b) },
	}.Test(t)
}
