package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
)

// inFP8 returns the setup with its model in a recipe.
func inFP8(t testing.TB, s setup, name string, attention bool) setup {
	t.Helper()
	recipe, err := fp8.Named(name)
	require.NoError(t, err)
	s.model.FP8, s.model.FP8Attention = recipe, attention
	for s.model.Width = 16; fp8.Divides(recipe, "", s.model.Width) != nil; {
		s.model.Width *= 2
	}
	return s
}

// TestFP8PeakIsPlanned plans copies of weights and saved activations in FP8 from a dry run on Null
// devices. In every recipe the measured peak of a step equals the planned one to the byte, and the
// allocations of the stages equal those of the layout, one by one.
func TestFP8PeakIsPlanned(t *testing.T) {
	for i, name := range fp8.Names {
		for _, s := range []setup{
			{schedule: "depth-first", ranks: 1, stages: 2, model: tiny},
			{schedule: "zb-h1", ranks: 2, stages: 2, capacity: 1, model: tiny},
			{schedule: "interleaved", ranks: 2, stages: 4, capacity: 1, model: tiny},
		} {
			t.Run(name+" "+s.String(), func(t *testing.T) {
				s := inFP8(t, s, name, i%2 == 0)
				s.model.Recompute = i%2 == 1
				m := 24
				if s.model.Width > 64 {
					s.model.Layers, m = 1, 8
				}
				checkPeak(t, s, m)
				checkTrace(t, s, m)
			})
		}
	}
}
