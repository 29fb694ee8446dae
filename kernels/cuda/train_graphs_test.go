package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// inGraphs trains two steps with dropout. It returns their numbers, and the driver calls per microbatch
// of the last step: all calls, the launches of kernels, and the launches of graphs.
func inGraphs(t *testing.T, model transformer.Config, seed uint64, cfg cuda.Config) (numbers []float64, calls, launches, graphs float64) {
	dev, fake := cudaFake(t, seed, cfg)
	queued := func() int {
		return fake.Calls("Launch", "LaunchGraph", "Copy", "Fill", "CopyIn", "CopyOut", "Record", "Wait", "Done", "Sync")
	}
	var first, kernelsFirst, graphsFirst int
	hook := func(_ int, action schedule.Action) { // the second microbatch equals the first without a first write
		if action.Microbatch() == 1 && action.Kind() == schedule.F {
			first, kernelsFirst, graphsFirst = queued(), fake.Calls("Launch"), fake.Calls("LaunchGraph")
		}
		if action.Microbatch() == cudaMicrobatches-1 && action.Kind() == schedule.F {
			const per = cudaMicrobatches - 2
			calls, launches, graphs = float64(queued()-first)/per, float64(fake.Calls("Launch")-kernelsFirst)/per, float64(fake.Calls("LaunchGraph")-graphsFirst)/per
		}
	}
	plan := runner.Plan{Placement: schedule.Looped(1, 1), Rule: schedule.DepthFirst}
	run := startCUDA(t, model, plan, func(cfg *runner.Config[kernels.Buffer]) { cfg.Seed, cfg.Hooks.Action = 5, hook }, dev)
	numbers = run.steps(2)
	run.close()
	return numbers, calls, launches, graphs
}

// TestCUDAGraphs requires that recurring kernels of an action are one launch of a graph, with the
// same bits as separate launches: the graph reads the number of the microbatch, on which draws and
// losses depend.
func TestCUDAGraphs(t *testing.T) {
	recipe, err := fp8.Named("nvfp4") // gradients are rounded stochastically
	require.NoError(t, err)
	plain, quantized := cudaConfig(nil), cudaConfig(recipe)
	plain.Dropout, quantized.Dropout, quantized.Width = 0.25, 0.25, 32
	models := map[string]transformer.Config{"float32": plain}
	if *testkit.Long {
		models["nvfp4"] = quantized
	}
	for name, model := range models {
		want, calls, launches, graphs := inGraphs(t, model, 1, cuda.Config{Plain: true})
		require.Zero(t, graphs)
		t.Logf("%s: each kernel by itself: %.1f calls of the driver for a microbatch, %.1f of them launches of kernels", name, calls, launches)
		got, fewer, alone, graphs := inGraphs(t, model, 2, cuda.Config{})
		require.Equal(t, want, got)
		require.Equal(t, 2.0, graphs, "a forward and a backward")
		require.Less(t, alone, launches/5)
		t.Logf("%s: in graphs: %.1f calls, %.1f launches of kernels, %.1f of graphs", name, fewer, alone, graphs)
	}
}
