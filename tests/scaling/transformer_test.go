package scaling_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestTransformerIsFlat checks levels and allocations for the stages of package transformer:
// embedding, blocks with dropout and recompute, and the tied head.
func TestTransformerIsFlat(t *testing.T) {
	testkit.Slow(t)
	for name, recompute := range map[string]bool{"saved": false, "recomputed": true} {
		t.Run(name, func(t *testing.T) {
			r, source := openTransformer(t, recompute)
			step := func(m int) (peak int64) {
				result, err := r.Step(t.Context(), m, source)
				require.NoError(t, err)
				require.Zero(t, result.Growth.Bytes, "M = %d", m)
				require.Zero(t, result.Excess, "M = %d", m)
				return result.Peak
			}
			peak := step(8)
			for _, m := range []int{128, 1024, 4096} {
				require.Equal(t, peak, step(m), "M = %d", m)
			}
			if invariants.Enabled || testkit.Raced {
				t.Skip("allocations are not counted with -tags invariants, under which every call gets a separate view, and under the race detector, under which pools drop objects")
			}
			bare := func(m int) func() {
				return func() {
					if _, err := r.Step(t.Context(), m, source); err != nil {
						t.Error(err)
					}
				}
			}
			want := testkit.Allocations(bare(128))
			many := 65536
			if recompute || !*testkit.Long {
				many = 16384 // more microbatches take too long
			}
			require.Equal(t, want, testkit.Allocations(bare(many), want))
		})
	}
}

// openTransformer returns a runner of a tiny model and a source of equal sequences of two
// tokens.
func openTransformer(t *testing.T, recompute bool) (*runner.Runner[kernels.Buffer], runner.Source[kernels.Buffer]) {
	t.Helper()
	const tokens = 2
	device, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, device.Close()) })
	model, err := transformer.New(device, transformer.Config{
		Vocabulary: 8, Width: 4, Layers: 1, Heads: 1, Context: tokens, Dropout: 0.1, Recompute: recompute,
	}, 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, model.Close()) })
	r, err := runner.New(runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: runner.Spaces(device), Gradients: device,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Hooks:  runner.Hooks{Microbatch: func(*memory.Sample) {}},
	})
	require.NoError(t, err)
	ids, weights := make([]int32, tokens), []float32{1, 1}
	return r, runner.Indexed(func(_ context.Context, e batchctx.Entry[kernels.Buffer]) error {
		for i := range ids {
			ids[i] = int32((e.Index() + i) % 8)
		}
		transformer.Put(device, e, ids, ids, weights)
		return nil
	})
}
