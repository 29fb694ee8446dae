package cuda_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// A model on the CUDA device, over a driver in Go and kernels that an interpreter runs, trains
// like on the host, in whatever order its streams run: losses agree within the effect of the
// order of summation in float32. No order changes a bit. A step allocates no memory.
func TestCUDALearnsAsTheHost(t *testing.T) {
	steps := 5
	if *testkit.Long {
		steps = 20
	}
	host := startCUDA(t, cudaConfig(nil), cudaAlone, nil, cudaHost(t))
	want := host.steps(steps) // a loss and a norm for each step
	host.close()
	require.Less(t, want[2*(steps-1)], want[0])

	var bits []float64
	for seed := range uint64(2) {
		dev, fake := cudaFake(t, seed, cuda.Config{})
		asked, inSteps, first := 0, 0, schedule.Action(0)
		run := startCUDA(t, cudaConfig(nil), cudaAlone, func(cfg *runner.Config[kernels.Buffer]) {
			cfg.Hooks.Action = func(_ int, action schedule.Action) {
				now := fake.Calls("Reserve", "Unreserve", "Map", "Unmap", "HostAlloc", "HostFree")
				if first == 0 {
					first = action
				}
				if action != first { // otherwise the action is the first of a step, and the layout was set before it
					inSteps += now - asked
				}
				asked = now
			}
		}, dev)
		if bits != nil {
			steps = 3
		}
		got := run.steps(steps)
		run.close()
		require.Zero(t, inSteps, "calls for memory within steps")
		for i := range steps {
			require.InDelta(t, want[2*i], got[2*i], 1e-5, "loss of step %d", i)
			require.Less(t, math.Abs(got[2*i+1]-want[2*i+1]), 1e-4*want[2*i+1], "gradient norm of step %d", i)
			// The host does not have the cell of the loss.
			require.EqualValues(t, host.peaks[i], run.peaks[i]-8*loss.DeviceWords)
		}
		if bits == nil {
			bits = got
		}
		require.Equal(t, bits[:len(got)], got, "seed %d", seed)
	}
}

// Nothing waits for the device before the end of a step, whatever the number of microbatches
// (L3): no stream is waited for and nothing is copied to the host, by stages, hooks, samples or
// recomputes, and the host waits for a copy in only if its slot is used again. The end of a
// step waits for the losses and for all gradient norms, once each.
func TestCUDAWaitsAtStepEnd(t *testing.T) {
	for microbatches, again := range map[int]bool{4: false, 6: false, 5: true} {
		dev, fake := cudaFake(t, 1, cuda.Config{})
		_, cfg := cudaModel(t, cudaConfig(nil), cudaAlone, dev)
		if again {
			for i := range cfg.Stages {
				cfg.Stages[i] = stages.Recompute(cfg.Stages[i])
			}
		}
		began, samples := 0, 0
		waits := func() int { return fake.Calls("Sync", "CopyOut") }
		cfg.Hooks.Action = func(int, schedule.Action) {
			if began < 0 {
				began = waits()
			}
			require.Equal(t, began, waits())
		}
		cfg.Hooks.Microbatch = func(*memory.Sample) {
			samples++
			require.Equal(t, began, waits())
		}
		run, err := runner.New(cfg)
		require.NoError(t, err)
		for step := range 2 {
			began = -1
			done, in := fake.Calls("Done"), fake.Calls("CopyIn")
			// With -tags invariants the runner hashes the entries of a source of
			// runner.Indexed, and waits for that.
			source := struct{ runner.Source[kernels.Buffer] }{cudaSource(step, dev)}
			_, err = run.Step(t.Context(), microbatches, source)
			require.NoError(t, err)
			require.Equal(t, 2+2, waits()-began, "%d microbatches: a copy out and a wait for it, of losses and of norms", microbatches)
			require.Equal(t, fake.Calls("CopyIn")-in, fake.Calls("Done")-done)
		}
		require.Equal(t, 2*microbatches, samples)
		require.NoError(t, run.Close())
	}
}

// Errors of a microbatch are known at the end of the step: the first loss that is not finite
// makes the step Skipped, with its microbatch, and does not affect the next one. A token that
// is not a row of the table ends the step immediately, with its microbatch.
func TestCUDABadMicrobatch(t *testing.T) {
	dev, _ := cudaFake(t, 1, cuda.Config{})
	m, cfg := cudaModel(t, cudaConfig(nil), cudaAlone, dev)
	run, err := runner.New(cfg)
	require.NoError(t, err)
	source := func(spoil func(mb int, tokens *[]int32, weights []float32)) runner.Source[kernels.Buffer] {
		return runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			tokens, weights := []int32{1, 2, 3}, []float32{1, 1, 1}
			spoil(entry.Index(), &tokens, weights)
			transformer.Put(dev, entry, tokens, []int32{3, 2, 1}[:len(tokens)], weights[:len(tokens)])
			return nil
		})
	}
	good := source(func(int, *[]int32, []float32) {})
	want, err := run.Step(t.Context(), 4, good)
	require.NoError(t, err)

	positions := m.Parameters()[1].Weight
	values := make([]float32, positions.N)
	require.NoError(t, dev.ReadFloat32(values, positions))
	spoilt := slices.Clone(values)
	spoilt[2*16] = float32(math.NaN()) // of the third token
	require.NoError(t, dev.WriteFloat32(positions, spoilt))
	result, err := run.Step(t.Context(), 4, source(func(mb int, tokens *[]int32, _ []float32) {
		if mb == 0 || mb == 3 {
			*tokens = (*tokens)[:2]
		}
	}))
	require.NoError(t, err)
	require.Equal(t, loss.Skipped, result.Outcome)
	require.Equal(t, 1, result.FirstNonFinite)
	require.True(t, result.Losses[0].NonFinite)
	require.NoError(t, dev.WriteFloat32(positions, values))
	_, err = run.Step(t.Context(), 4, source(func(mb int, _ *[]int32, weights []float32) {
		if mb == 2 {
			weights[1] = -7
		}
	}))
	require.ErrorIs(t, err, loss.ErrWeight)
	require.ErrorContains(t, err, `for "loss" at microbatch 2`)
	_, err = run.Step(t.Context(), 4, source(func(mb int, tokens *[]int32, _ []float32) {
		if mb == 3 {
			(*tokens)[1] = 24
		}
	}))
	require.ErrorContains(t, err, "microbatch 3")
	require.ErrorContains(t, err, "IDs[1] is 24, the vocabulary has 24")
	again, err := run.Step(t.Context(), 4, good)
	require.NoError(t, err)
	require.Equal(t, want.Losses, again.Losses)
	require.NoError(t, run.Close())
	require.NoError(t, dev.Close())
}

// Heads that are too wide for the device are rejected when the model is built, in a dry run
// too.
func TestCUDARefusesWideHeads(t *testing.T) {
	dev := opened(t, fakecuda.New(1, 16<<20, 4096), cuda.Config{})
	null := kernels.NewNull(dev)
	for _, dev := range []kernels.Compute{dev, null} {
		_, err := transformer.New(dev, transformer.Config{Vocabulary: 24, Width: 260, Layers: 1, Heads: 2, Context: 8}, 1)
		require.ErrorContains(t, err, "heads of 130 elements (Width 260, Heads 2)")
		require.ErrorContains(t, err, "at most 128")
		require.Zero(t, dev.Live())
		require.NoError(t, dev.Close())
	}
}

// A device that is lost in the middle of a step ends it with an error that says so. The books
// are empty then, and Close returns.
func TestCUDALostInAStep(t *testing.T) {
	for call, nth := range map[string]int{"Launch": 70, "CopyIn": 7, "CopyOut": 2, "Record": 7, "Wait": 7, "Sync": 1} {
		dev, fake := cudaFake(t, 1, cuda.Config{})
		m, cfg := cudaModel(t, cudaConfig(nil), cudaAlone, dev)
		run, err := runner.New(cfg)
		require.NoError(t, err)
		fake.Plant(call, nth, driver.ErrLost)
		_, err = run.Step(t.Context(), cudaMicrobatches, cudaSource(0, dev))
		require.ErrorIs(t, err, driver.ErrLost, call)
		require.ErrorContains(t, err, "the CUDA device is lost", call)
		require.NoError(t, run.Close())
		_ = m.Close() // it may wait, and then returns the error too
		require.Zero(t, dev.Live())
		require.ErrorIs(t, dev.Close(), driver.ErrLost)
	}
}

// Packed sequences have the same losses and gradients as one sequence per microbatch, bit for bit. Each
// sequence has its own views and its own draws.
func TestCUDAPackedSequences(t *testing.T) {
	var want []float64
	for _, packs := range [][][]int{{{2}, {0}, {1}, {3}}, {{2, 0}, {1, 3}}} { // the numbers of the sequences
		dev, _ := cudaFake(t, 1, cuda.Config{})
		cfg := cudaConfig(nil)
		cfg.Dropout = 0.25
		m, run := cudaModel(t, cfg, cudaAlone, dev)
		m.Sequences = func(mb int) (all []transformer.Sequence) {
			for _, n := range packs[mb] {
				all = append(all, transformer.Sequence{Number: n, Tokens: 2 + n})
			}
			return all
		}
		r, err := runner.New(run)
		require.NoError(t, err)
		result, err := r.Step(t.Context(), len(packs), runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			var tokens, labels []int32
			var weights []float32
			for _, s := range m.Sequences(entry.Index()) {
				for i := range s.Tokens {
					tokens, labels, weights = append(tokens, int32(7*i+s.Number)%24), append(labels, int32(i)), append(weights, 1.5)
				}
			}
			transformer.Put(dev, entry, tokens, labels, weights)
			return nil
		}))
		require.NoError(t, err)
		have := []float64{result.Losses[0].Sum, result.Losses[0].Weight, result.GradNorm}
		for _, p := range m.Parameters() {
			gradient := make([]float32, p.Grad.N)
			require.NoError(t, dev.ReadFloat32(gradient, p.Grad))
			for _, x := range gradient {
				have = append(have, float64(x))
			}
		}
		if want == nil {
			want = have
		}
		require.Equal(t, want, have)
		require.NoError(t, errors.Join(r.Close(), m.Close(), dev.Close()))
	}
}

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
