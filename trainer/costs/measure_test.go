package costs_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/costs"
)

// whole is a stage that does not split its backward.
type whole struct{ stages.Stage[kernels.Buffer] }

func (w whole) Unwrap() stages.Stage[kernels.Buffer] { return w.Stage }

// A stage that does not split its backward has only a time for B, and a frozen stage has only a time for I.
// Their sizes equal those of a stage that splits its backward.
func TestMeasureWhole(t *testing.T) {
	measure := func(change func([]stages.Stage[kernels.Buffer])) ([]simulate.StageCosts, error) {
		dev, err := kernels.NewHost(kernels.HostConfig{})
		require.NoError(t, err)
		defer dev.Close()
		model, err := transformer.New(dev, transformer.Config{Vocabulary: 32, Width: 8, Layers: 1, Heads: 2, Context: 16}, 3)
		require.NoError(t, err)
		defer model.Close()
		ids, ones := make([]int32, 16), make([]float32, 16)
		for i := range ones {
			ones[i] = 1
		}
		source := runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			transformer.Put(dev, entry, ids, ids, ones)
			return nil
		})
		list := model.Stages()
		change(list)
		measured, err := costs.Measure(t.Context(), costs.Config[kernels.Buffer]{
			Runner: runner.Config[kernels.Buffer]{
				Stages: list, Spaces: runner.Spaces(dev), Gradients: dev, Losses: []loss.Def{{Name: transformer.LossName, Objective: true}},
			},
			Source: func(int) runner.Source[kernels.Buffer] { return source }, Largest: source, Steps: 1, Microbatches: 4,
		})
		if err != nil {
			return nil, err
		}
		return measured.Stages, nil
	}
	split, err := measure(func([]stages.Stage[kernels.Buffer]) {})
	require.NoError(t, err)
	for _, frozen := range []bool{false, true} {
		got, err := measure(func(list []stages.Stage[kernels.Buffer]) {
			list[1] = whole{list[1]}
			if frozen {
				list[1] = stages.Freeze(list[1])
			}
		})
		require.NoError(t, err)
		s := got[1]
		require.Positive(t, s.F)
		require.Equal(t, frozen, s.I > 0)
		require.Equal(t, !frozen, s.B > 0)
		require.Zero(t, s.W)
		require.Equal(t, split[1].Output, s.Output)
		require.Equal(t, split[1].Gradient, s.Gradient)
		require.Zero(t, s.Carry)
		if !frozen {
			require.Equal(t, split[1].Saved, s.Saved)
			require.Zero(t, s.FreedByI)
		}
		require.Positive(t, got[0].I, "the others are split")
	}
	_, err = measure(func(list []stages.Stage[kernels.Buffer]) { list[1] = nil })
	require.ErrorContains(t, err, "stage 1 is nil")
	_, err = costs.Measure(t.Context(), costs.Config[kernels.Buffer]{})
	require.ErrorContains(t, err, "costs: Source or Largest is nil")
}

// The number of bytes that a transformer's stages save and send is exact for every length, and their times
// grow with the length.
func TestMeasureLengths(t *testing.T) {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	defer dev.Close()
	model, err := transformer.New(dev, transformer.Config{Vocabulary: 32, Width: 8, Layers: 1, Heads: 2, Context: 64}, 3)
	require.NoError(t, err)
	defer model.Close()
	source := func(length int) runner.Source[kernels.Buffer] {
		ids, ones := make([]int32, length), make([]float32, length)
		for i := range ones {
			ones[i] = 1
		}
		return runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			transformer.Put(dev, entry, ids, ids, ones)
			return nil
		})
	}
	cfg := costs.Config[kernels.Buffer]{
		Runner: runner.Config[kernels.Buffer]{
			Stages: model.Stages(), Spaces: runner.Spaces(dev), Gradients: dev, Losses: []loss.Def{{Name: transformer.LossName, Objective: true}},
		},
		Steps: 1, Microbatches: 4,
	}
	var sized []costs.Sized[kernels.Buffer]
	for _, length := range []int{8, 16, 64} {
		sized = append(sized, costs.Sized[kernels.Buffer]{Size: lengths.Of(length), Source: source(length)})
	}
	got, misfit, err := costs.MeasureLengths(t.Context(), cfg, sized)
	require.NoError(t, err)
	require.GreaterOrEqual(t, misfit, 0.0)
	for _, length := range []int{8, 31, 64} {
		one := source(length)
		cfg.Source, cfg.Largest = func(int) runner.Source[kernels.Buffer] { return one }, one
		want, err := costs.Measure(t.Context(), cfg)
		require.NoError(t, err)
		for stage := range want.Stages {
			at, exact := got.Stages[stage].At(lengths.Of(length)), want.Stages[stage]
			require.Equal(t, exact.Output, at.Output)
			require.Equal(t, exact.Gradient, at.Gradient)
			require.Equal(t, exact.Saved, at.Saved, "stage %d, %d tokens", stage, length)
			require.Equal(t, exact.Carry, at.Carry)
			require.Equal(t, exact.FreedByI, at.FreedByI)
		}
	}
	_, _, err = costs.MeasureLengths(t.Context(), cfg, sized[:2])
	require.ErrorIs(t, err, simulate.ErrCosts)
}
