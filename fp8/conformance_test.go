package fp8_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
)

// Delayed scaling is tested as in TransformerEngine's tests/pytorch/test_recipe.py. If this package made a different
// choice, the test says so.

// delayed returns a state of one tensor, a forward one in E4M3 or a gradient in E5M2.
func delayed(t *testing.T, recipe fp8.DelayedScaling, f fp8.Format) *fp8.State {
	t.Helper()
	role := fp8.Input
	if f == fp8.E5M2 {
		role = fp8.GradOutput
	}
	recipe.Format = fp8.Hybrid
	s, err := fp8.NewState(recipe, []fp8.Slot{{Name: "x", Role: role}})
	require.NoError(t, err)
	return s
}

// after returns the scale after a step that measured amax.
func after(t *testing.T, s *fp8.State, amax float32) float32 {
	t.Helper()
	_, err := s.End(measured(amax))
	require.NoError(t, err)
	return s.Scales()[0]
}

// test_scale_update_numeric_scenarios: zero, tiny, normal, infinite and NaN, from a scale
// of 1 and no history.
func TestNumericScenariosAsTransformerEngine(t *testing.T) {
	for _, f := range []fp8.Format{fp8.E4M3, fp8.E5M2} {
		for name, c := range map[string]struct{ amax, want float32 }{
			"zero":   {0, 1},
			"tiny":   {f.Max() / math.MaxFloat32 / 2, math.MaxFloat32},
			"normal": {0.7340179, f.Max() / 0.7340179},
			"inf":    {inf, 1},
			"nan":    {nan, 1},
		} {
			require.Equal(t, c.want, after(t, delayed(t, fp8.DelayedScaling{}, f), c.amax), "%s of %v", name, f)
		}
	}
}

// test_fp8_scale_update_with_linear_module: a margin of 2, histories of 1, 31 and 1,024, the
// greatest or the latest amax. A 3 that exceeds all other amaxes shows the order in which a
// history rolls: it remains in effect for as many steps as the history is long. There is no
// is_first_microbatch here: a scale belongs to a step, whichever microbatch comes first.
func TestRollAsTransformerEngine(t *testing.T) {
	r := rand.New(rand.NewPCG(29, 29))
	for _, history := range []int{1, 31, 1024} {
		for _, recent := range []bool{false, true} {
			for _, f := range []fp8.Format{fp8.E4M3, fp8.E5M2} {
				s := delayed(t, fp8.DelayedScaling{Margin: 2, History: history, MostRecent: recent}, f)
				name := fmt.Sprintf("history %d, most recent %v, %v", history, recent, f)
				var seen []float32
				for step := range history + 40 {
					amax := 2*r.Float32() + 0.5
					if step == 20 {
						amax = 3
					}
					seen = append(seen, amax)
					most := amax
					if !recent {
						for _, a := range seen[max(0, len(seen)-history):] {
							most = max(most, a)
						}
					}
					require.Equal(t, f.Max()/4/most, after(t, s, amax), "%s, step %d", name, step)
				}
			}
		}
	}
}

// test_fp8_scale_update_with_linear_fuser_op: input, weight and gradient with separate amaxes in each of four steps, a
// history of 1,024 and no margin.
func TestStepsAsTransformerEngine(t *testing.T) {
	s, err := fp8.NewState(fp8.DelayedScaling{Format: fp8.Hybrid, History: 1024},
		[]fp8.Slot{{"x", fp8.Input}, {"w", fp8.Weight}, {"dy", fp8.GradOutput}})
	require.NoError(t, err)
	for step := range 4 {
		x := float32(step)
		_, err := s.End(measured(x+0.25, x+0.5, x+0.75))
		require.NoError(t, err)
		require.Equal(t, []float32{448 / (x + 0.25), 448 / (x + 0.5), 57344 / (x + 0.75)}, s.Scales())
	}
}

// A single infinity: TransformerEngine keeps it in the history until it rolls out, and the
// scale does not change until then; its two ways to update a scale differ for NaN. Here neither
// enters a history: the scale stays only until the next step with a finite amax.
func TestNonFiniteStepsUnlikeTransformerEngine(t *testing.T) {
	for _, bad := range []float32{inf, nan} {
		s := delayed(t, fp8.DelayedScaling{History: 1024}, fp8.E4M3)
		require.Equal(t, float32(448)/2, after(t, s, 2))
		require.Equal(t, float32(448)/2, after(t, s, bad), "kept")
		require.Equal(t, float32(448)/4, after(t, s, 4), "and moved by the next number")
	}
}

// A tensor that a step does not use keeps its scale and history, as in the fused update
// (TransformerEngine pull request 825).
func TestUnusedStepsAsTransformerEngine(t *testing.T) {
	s := delayed(t, fp8.DelayedScaling{History: 2}, fp8.E4M3)
	after(t, s, 4)
	after(t, s, 2)
	for range 5 {
		require.Equal(t, float32(448)/4, after(t, s, 0))
	}
	require.Equal(t, float32(448)/2, after(t, s, 1))
}
