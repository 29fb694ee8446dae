package memory_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestNothingIsLeftAtRefit releases the memory of steps and gradients between steps: none of it is
// live or reserved, and the kernel has no page of it. After Restore the next step finds every page
// present, and all numbers equal those of a run that kept its memory.
func TestNothingIsLeftAtRefit(t *testing.T) {
	low := tiny
	low.Width, low.FP8, low.FP8Attention = 16, fp8.DelayedScaling{Format: fp8.Hybrid}, true
	for name, model := range map[string]transformer.Config{"float32": tiny, "FP8": low} {
		t.Run(name, func(t *testing.T) { nothingIsLeft(t, model) })
	}
}

func nothingIsLeft(t *testing.T, model transformer.Config) {
	s := setup{schedule: "zb-v", ranks: 1, stages: 2, model: model, capacity: 1}
	profile := profileOf(t, s, 5)
	kept, gave := newRig(t, s, false), newRig(t, s, false)
	keeping, giving := kept.group(t, profile), gave.group(t, profile)
	adam := transformer.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8}
	train := func(r *rig, g *runner.Runner[T]) (loss float64) {
		pages := r.pages()
		result, err := g.Step(t.Context(), 12, r.sources(fixed(5)))
		require.NoError(t, err)
		require.True(t, result.Planned)
		if r == gave && pages != nil {
			require.Equal(t, pages, r.pages(), "a page was missing within the step")
		}
		r.update(t, adam, result)
		return result.Losses[0].Value
	}
	nothing := int64(0)
	if runtime.GOOS != "linux" {
		nothing = -1 // unless the kernel reports it
	}
	require.Equal(t, train(kept, keeping), func() float64 {
		result, err := giving.Step(t.Context(), 12, gave.sources(fixed(5)))
		require.NoError(t, err)
		gave.update(t, adam, result)
		return result.Losses[0].Value
	}())
	for range 3 {
		for _, dev := range gave.hosts {
			require.NoError(t, dev.ReleasePages(nil, memory.StepScope, memory.Gradients))
			for _, scope := range []memory.Scope{memory.StepScope, memory.Gradients} {
				stats := dev.Scope(scope)
				require.Zero(t, stats.Live, "%v", scope)
				require.Zero(t, stats.Reserved, "%v", scope)
				require.Equal(t, nothing, stats.Pages, "%v: pages that the kernel has", scope)
			}
		}
		_, err := giving.Step(t.Context(), 12, gave.sources(fixed(5)))
		require.ErrorIs(t, err, memory.ErrReleased, "a step without its memory is refused")
		for _, dev := range gave.hosts {
			require.NoError(t, dev.RestorePages(nil))
		}
		want, got := train(kept, keeping), train(gave, giving)
		require.Equal(t, math.Float64bits(want), math.Float64bits(got))
	}
	require.Equal(t, kept.weights(t), gave.weights(t))
}

// update ends a step as a trainer does.
func (r *rig) update(t *testing.T, adam transformer.AdamW, result *runner.Result) {
	t.Helper()
	_, err := r.model.RollScales(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, r.model.Update(adam, result, 1))
}

// pages returns, by rank, the number of pages that the kernel has for steps, or nil if it is
// unknown.
func (r *rig) pages() (list []int64) {
	for _, dev := range r.hosts {
		n := dev.Scope(memory.StepScope).Pages
		if n < 0 {
			return nil
		}
		list = append(list, n)
	}
	return list
}

// weights returns all weights.
func (r *rig) weights(t *testing.T) (list []float32) {
	t.Helper()
	for _, p := range r.model.Parameters() {
		values := make([]float32, p.Weight.N)
		require.NoError(t, r.hosts[0].ReadFloat32(values, p.Weight))
		list = append(list, values...)
	}
	return list
}
