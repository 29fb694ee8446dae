package parity_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/fakecuda"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

const cudaTokens, cudaMicrobatches = 8, 4

func cudaSource(dev kernels.Device, step int) runner.Source[kernels.Buffer] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
		var tokens, labels []int32
		var weights []float32
		for i := range cudaTokens {
			tokens = append(tokens, int32((7*i+5*entry.Index()+step%2)%24))
			labels = append(labels, (tokens[i]+7)%24)
			weights = append(weights, float32(1+i%2))
		}
		transformer.Put(dev, entry, tokens, labels, weights)
		return nil
	})
}

func onDeviceConfig(t *testing.T, dev kernels.Compute) (*transformer.Model, runner.Config[kernels.Buffer]) {
	m, err := transformer.New(dev, transformer.Config{
		Vocabulary: 24, Width: 16, Layers: 1, Heads: 2, Context: cudaTokens, Seed: 3,
	}, 3)
	require.NoError(t, err)
	return m, runner.Config[kernels.Buffer]{
		Stages: m.Stages(), Spaces: runner.On(dev), Gradients: dev,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	}
}

// onDevice trains a small model for some steps, with planned memory, on any device.
func onDevice(t *testing.T, dev kernels.Compute, steps int, hooks runner.Hooks) (losses, norms []float64, peaks []int64) {
	null := kernels.NewNull(dev)
	_, dry := onDeviceConfig(t, null)
	profile, err := runner.Record(t.Context(), dry, runner.Shape[kernels.Buffer]{Name: "all", Source: cudaSource(null, 0)})
	require.NoError(t, err)
	require.NoError(t, null.Close())

	m, cfg := onDeviceConfig(t, dev)
	cfg.Memory, cfg.Hooks = runner.Memory{Profile: profile}, hooks
	run, err := runner.New(cfg)
	require.NoError(t, err)
	for step := range steps {
		result, err := run.Step(t.Context(), cudaMicrobatches, cudaSource(dev, step))
		require.NoError(t, err)
		require.NoError(t, m.Update(transformer.AdamW{LearningRate: 0.01}, result, 1))
		losses, norms = append(losses, result.Loss(transformer.LossName)), append(norms, result.GradNorm)
		var stats memory.Stats
		dev.Stats(&stats)
		peaks = append(peaks, stats.Peak)
	}
	require.NoError(t, run.Close())
	require.NoError(t, m.Close())
	return losses, norms, peaks
}

// A model on the CUDA device, over a driver in Go and kernels that an interpreter runs, learns
// what it learns on the host, in whatever order its streams run: losses within what the orders
// of summation make of float32. No order changes a bit. In a step no memory is asked for.
func TestCUDALearnsAsTheHost(t *testing.T) {
	const steps = 4
	host, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	defer host.Close()
	want, wantNorms, wantPeaks := onDevice(t, host, steps, runner.Hooks{})
	require.Less(t, want[steps-1], want[0])

	var bits []float64
	for seed := range uint64(2) {
		fake := fakecuda.New(seed, 16<<20, 4096)
		dev, err := cuda.Open(fake, cuda.Config{})
		require.NoError(t, err)
		fake.Follow(dev.All)
		asked, inSteps, first := 0, 0, schedule.Action(0)
		got, norms, peaks := onDevice(t, dev, steps, runner.Hooks{Action: func(_ int, action schedule.Action) {
			now := fake.Calls("Reserve", "Unreserve", "Map", "Unmap", "HostAlloc", "HostFree")
			if first == 0 {
				first = action
			}
			if action != first { // else it is the first of a step, and the layout was laid before
				inSteps += now - asked
			}
			asked = now
		}})
		require.Zero(t, inSteps, "calls for memory within steps")
		for i := range got {
			require.InDelta(t, want[i], got[i], 1e-5, "loss of step %d", i)
			require.Less(t, math.Abs(norms[i]-wantNorms[i]), 1e-4*wantNorms[i], "gradient norm of step %d", i)
		}
		require.Equal(t, wantPeaks, peaks)
		if bits == nil {
			bits = got
		}
		require.Equal(t, bits, got, "seed %d", seed)
		require.NoError(t, dev.Close())
	}
}

// A device that is lost in the midst of a step ends it with an error that says so. The books
// are empty then, and Close comes back.
func TestCUDALostInAStep(t *testing.T) {
	for call, nth := range map[string]int{"Launch": 70, "CopyIn": 7, "CopyOut": 3, "Record": 7, "Wait": 7, "Sync": 3} {
		fake := fakecuda.New(1, 16<<20, 4096)
		dev, err := cuda.Open(fake, cuda.Config{})
		require.NoError(t, err)
		fake.Follow(dev.All)
		m, cfg := onDeviceConfig(t, dev)
		run, err := runner.New(cfg)
		require.NoError(t, err)
		fake.Plant(call, nth, driver.ErrLost)
		_, err = run.Step(t.Context(), cudaMicrobatches, cudaSource(dev, 0))
		require.ErrorIs(t, err, driver.ErrLost, call)
		require.ErrorContains(t, err, "the CUDA device is lost", call)
		require.NoError(t, run.Close())
		_ = m.Close() // It may wait, and then says so too.
		require.Zero(t, dev.Live())
		require.ErrorIs(t, dev.Close(), driver.ErrLost)
	}
}
