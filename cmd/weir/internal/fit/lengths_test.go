package fit_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/schedule/lengths"
)

// The costs of a model as functions of length agree with its formulas at every length.
func TestCostsByLength(t *testing.T) {
	for _, precision := range []fit.Precision{fit.BF16, fit.FP8} {
		for _, recompute := range []fit.Recompute{{}, {All: true}} {
			file, err := os.Open("../../../../docs/fit/llama-3-8b.json")
			require.NoError(t, err)
			defer file.Close()
			config, err := fit.Read(file, nil)
			require.NoError(t, err)
			config.Setup.Sequence, config.Setup.Precision, config.Setup.Recompute = 4096, precision, recompute
			search := fit.Search{Model: &config.Model, Setup: config.Setup, Speed: 4e14, Bandwidth: 5e10}
			costs, cut, err := search.ByLength(4, nil)
			require.NoError(t, err)
			for _, length := range []int{1000, 4096, 20_001} {
				search.Setup.Sequence = length
				list, err := search.Stages(cut)
				require.NoError(t, err)
				for stage, want := range list {
					got := costs.Stages[stage].At(lengths.Of(length))
					require.Equal(t, want.Saved, got.Saved)
					require.Equal(t, want.Carry, got.Carry)
					require.Equal(t, want.Output, got.Output)
					require.Equal(t, want.Resident, got.Resident)
					for _, times := range [][2]int64{{want.F, got.F}, {want.I, got.I}, {want.W, got.W}} {
						require.InEpsilon(t, times[0], times[1], 1e-5)
					}
				}
			}
		}
	}
}
