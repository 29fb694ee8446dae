package fmapeak_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
	"github.com/weir-ml/weir/internal/arithmetic/fmapeak"
)

// GFLOPS is positive if the processor has the instructions, and otherwise 0.
func TestGFLOPS(t *testing.T) {
	for lanes, have := range map[int]bool{16: cpufeature.AVX512, 8: cpufeature.AVX2FMA, 5: false} {
		if have {
			require.Positive(t, fmapeak.GFLOPS(lanes), lanes)
		} else {
			require.Zero(t, fmapeak.GFLOPS(lanes), lanes)
		}
	}
}
