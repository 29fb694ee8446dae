package transformer_test

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

var seedFlag = flag.Uint64("seed", 1, "seed of the random tests")

// random returns a source of random numbers whose seed is logged.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	t.Logf("-seed %d", *seedFlag)
	return rand.New(rand.NewPCG(*seedFlag, 7))
}

// Constants of every runner here.
const (
	runnerSeed = 99
	firstStep  = 3
)

// tiny is a model that is small enough for finite differences and large enough that every
// dimension differs from every other.
var tiny = transformer.Config{Vocabulary: 11, Width: 8, Layers: 2, Heads: 2, Context: 10, Seed: 5}

// sequence is one microbatch.
type sequence struct {
	tokens, labels []int32
	weights        []float32
}

// sequences draws n microbatches of uneven lengths. Some labels have weight 0.
func sequences(r *rand.Rand, cfg transformer.Config, n int) []sequence {
	out := make([]sequence, n)
	for i := range out {
		length := 1 + r.IntN(cfg.Context)
		for range length {
			out[i].tokens = append(out[i].tokens, r.Int32N(int32(cfg.Vocabulary)))
			out[i].labels = append(out[i].labels, r.Int32N(int32(cfg.Vocabulary)))
			weight := float32(1)
			if r.IntN(5) == 0 {
				weight = 0
			}
			out[i].weights = append(out[i].weights, weight)
		}
		out[i].weights[0] = 0.5
	}
	return out
}

// source provides the sequences in order, and starts again at the end of a step. It allocates
// nothing on the Go heap.
type source struct {
	dev       kernels.Device
	sequences []sequence
}

func (s *source) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	q := &s.sequences[entry.Index()%len(s.sequences)]
	transformer.Put(s.dev, entry, q.tokens, q.labels, q.weights)
	return nil
}

// newHost returns a small host that is closed when the test ends, and requires that it is empty
// then.
func newHost(t testing.TB) *kernels.Host {
	t.Helper()
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, host.Live(), "bytes live at the end")
		require.NoError(t, host.Close())
	})
	return host
}

// newModel returns a model that is closed when the test ends.
func newModel(t testing.TB, dev kernels.Compute, cfg transformer.Config, stageCount int) *transformer.Model {
	t.Helper()
	m, err := transformer.New(dev, cfg, stageCount)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func newRunner(t testing.TB, dev kernels.Compute, list []stages.Stage[kernels.Buffer], change func(*runner.Config[kernels.Buffer])) *runner.Runner[kernels.Buffer] {
	t.Helper()
	cfg := runner.Config[kernels.Buffer]{
		Stages: list, Spaces: runner.Spaces(dev), Gradients: dev, Seed: runnerSeed, FirstStep: firstStep,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	}
	if change != nil {
		change(&cfg)
	}
	r, err := runner.New(cfg)
	require.NoError(t, err)
	return r
}

// runStep runs a step that must succeed.
func runStep(t testing.TB, r *runner.Runner[kernels.Buffer], microbatches int, from runner.Source[kernels.Buffer]) *runner.Result {
	t.Helper()
	result, err := r.Step(t.Context(), microbatches, from)
	require.NoError(t, err)
	return result
}

// read copies a float32 buffer to the host.
func read(t testing.TB, dev kernels.Device, b kernels.Buffer) []float32 {
	t.Helper()
	out := make([]float32, b.N)
	require.NoError(t, dev.ReadFloat32(out, b))
	return out
}

// fill sets every element of a buffer.
func fill(t testing.TB, dev kernels.Device, b kernels.Buffer, value float32) {
	t.Helper()
	numbers := make([]float32, b.N)
	for i := range numbers {
		numbers[i] = value
	}
	require.NoError(t, dev.WriteFloat32(b, numbers))
}

// bits returns the bits of numbers that must be bit-equal.
func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

// outcome has all numbers that steps leave behind.
type outcome struct {
	losses    []uint64
	gradients map[string][]uint32
	weights   map[string][]uint32
	scales    []byte // scales and histories of a model in FP8
}

// train runs steps over all sequences, each with an update.
func train(t *testing.T, cfg transformer.Config, stageCount, steps int, plan schedule.Rule, batch []sequence) outcome {
	t.Helper()
	dev := newHost(t)
	m := newModel(t, dev, cfg, stageCount)
	r := newRunner(t, dev, m.Stages(), func(c *runner.Config[kernels.Buffer]) { c.Plan.Rule = plan })
	o := outcome{gradients: map[string][]uint32{}, weights: map[string][]uint32{}}
	for range steps {
		result := runStep(t, r, len(batch), &source{dev, batch})
		value := result.Loss(transformer.LossName)
		require.False(t, math.IsNaN(value))
		o.losses = append(o.losses, math.Float64bits(value), math.Float64bits(result.GradNorm))
		rollScales(t, m, nil)
		require.NoError(t, m.Update(transformer.AdamW{LearningRate: 0.01, WeightDecay: 0.1}, result, 0.5))
	}
	var err error
	o.scales, err = m.MarshalScales()
	require.NoError(t, err)
	for _, p := range m.Parameters() {
		o.gradients[p.Name] = bits(read(t, dev, p.Grad))
		o.weights[p.Name] = bits(read(t, dev, p.Weight))
	}
	require.NoError(t, r.Close())
	return o
}

// rollScales ends a step of a model, which may be in FP8.
func rollScales(t testing.TB, m *transformer.Model, reduce fp8.Reducer) fp8.Statistics {
	t.Helper()
	report, err := m.RollScales(t.Context(), reduce)
	require.NoError(t, err)
	return report
}
