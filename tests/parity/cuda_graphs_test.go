package parity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/fakecuda"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// inGraphs trains with dropout and planned memory. It returns the losses, and the driver calls per
// microbatch of the last step: all calls, the launches of kernels, and the launches of graphs.
func inGraphs(t *testing.T, model transformer.Config, fake *fakecuda.Driver, cfg cuda.Config, steps, microbatches int) (losses []float64, calls, launches, graphs float64) {
	dev, err := cuda.Open(fake, cfg)
	require.NoError(t, err)
	fake.Follow(dev.All)
	config := func(dev kernels.Compute) (*transformer.Model, runner.Config[kernels.Buffer]) {
		m, err := transformer.New(dev, model, 1)
		require.NoError(t, err)
		return m, runner.Config[kernels.Buffer]{Stages: m.Stages(), Spaces: runner.Spaces(dev), Gradients: dev, Seed: 5}
	}
	null := kernels.NewNull(dev)
	_, dry := config(null)
	profile, err := runner.Record(t.Context(), dry, runner.Shape[kernels.Buffer]{Name: "all", Source: cudaSource(null, 0)})
	require.NoError(t, err)
	require.NoError(t, null.Close())

	m, conf := config(dev)
	conf.Memory.Profile = profile
	queued := func() int {
		return fake.Calls("Launch", "LaunchGraph", "Copy", "Fill", "CopyIn", "CopyOut", "Record", "Wait", "Done", "Sync")
	}
	var first, kernels, inGraph int
	conf.Hooks.Action = func(_ int, action schedule.Action) { // the second microbatch equals the first without a first write
		if action.Microbatch() == 1 && action.Kind() == schedule.F {
			first, kernels, inGraph = queued(), fake.Calls("Launch"), fake.Calls("LaunchGraph")
		}
		if action.Microbatch() == microbatches-1 && action.Kind() == schedule.F {
			per := float64(microbatches - 2)
			calls, launches, graphs = float64(queued()-first)/per, float64(fake.Calls("Launch")-kernels)/per, float64(fake.Calls("LaunchGraph")-inGraph)/per
		}
	}
	run, err := runner.New(conf)
	require.NoError(t, err)
	for step := range steps {
		result, err := run.Step(t.Context(), microbatches, cudaSource(dev, step))
		require.NoError(t, err)
		_, err = m.RollScales(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, m.Update(transformer.AdamW{LearningRate: 0.01}, result, 1))
		losses = append(losses, result.Loss(transformer.LossName))
	}
	require.NoError(t, run.Close())
	require.NoError(t, m.Close())
	require.NoError(t, dev.Close())
	return losses, calls, launches, graphs
}

// TestCUDAGraphs requires that recurring kernels of an action are one launch of a graph, with the
// same bits as separate launches: the graph reads the number of the microbatch, on which draws and
// losses depend.
func TestCUDAGraphs(t *testing.T) {
	model := transformer.Config{Vocabulary: 24, Width: 16, Layers: 1, Heads: 2, Context: cudaTokens, Seed: 3, Dropout: 0.25}
	quantized := model
	quantized.Width = 32
	var err error
	quantized.FP8, err = fp8.Named("nvfp4") // gradients are rounded stochastically
	require.NoError(t, err)
	for name, model := range map[string]transformer.Config{"float32": model, "nvfp4": quantized} {
		const steps, microbatches = 2, 4
		want, calls, launches, graphs := inGraphs(t, model, fakecuda.New(1, 16<<20, 4096), cuda.Config{Plain: true}, steps, microbatches)
		require.Zero(t, graphs)
		t.Logf("%s: each kernel by itself: %.1f calls of the driver for a microbatch, %.1f of them launches of kernels", name, calls, launches)
		got, fewer, alone, graphs := inGraphs(t, model, fakecuda.New(2, 16<<20, 4096), cuda.Config{}, steps, microbatches)
		require.Equal(t, want, got)
		require.Equal(t, 2.0, graphs, "a forward and a backward")
		require.Less(t, alone, launches/5)
		t.Logf("%s: in graphs: %.1f calls, %.1f launches of kernels, %.1f of graphs", name, fewer, alone, graphs)
	}
}
