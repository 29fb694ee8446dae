package parity_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	reference "github.com/weir-ml/weir/tests/parity"
)

// small is the model of these tests, with dropout and a tied table.
func small() transformer.Config {
	return transformer.Config{Vocabulary: 32, Width: 16, Layers: 3, Heads: 2, Context: 16, Dropout: 0.2, Seed: 11}
}

// drawSeed is the runner's seed of dropout.
const drawSeed = 5

// update is the optimizer of these tests. The maximum norm is low enough to clip.
var update = transformer.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}

const maxNorm = 0.5

// unevenBatch returns sequences of these lengths. Weights are uneven as well; some are 0.
func unevenBatch(seed uint64, vocabulary int, lengths ...int) []reference.Sequence {
	random := rand.New(rand.NewPCG(seed, 0))
	var batch []reference.Sequence
	for _, n := range lengths {
		var s reference.Sequence
		for range n {
			s.Tokens = append(s.Tokens, int32(random.IntN(vocabulary)))
			s.Labels = append(s.Labels, int32(random.IntN(vocabulary)))
			s.Weights = append(s.Weights, []float32{0, 0.5, 1, 1, 1, 2.25}[random.IntN(6)])
		}
		batch = append(batch, s)
	}
	return batch
}

// variant is a way to run the model.
type variant struct {
	rule      schedule.Rule
	group     int
	stages    int
	recompute bool
	lookAhead int
}

// rig is a model on a separate device, with a runner.
type rig struct {
	t       testing.TB
	dev     *kernels.Host
	model   *transformer.Model
	runner  *runner.Runner[kernels.Buffer]
	config  runner.Config[kernels.Buffer]
	actions []schedule.Action // of the last step, without drops
	pulls   []schedule.Action // by microbatch: the action that pulled its entry
}

func newRig(t testing.TB, cfg transformer.Config, v variant, change ...func(*runner.Config[kernels.Buffer])) *rig {
	t.Helper()
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	require.NoError(t, err)
	cfg.Recompute = v.recompute
	model, err := transformer.New(dev, cfg, v.stages)
	require.NoError(t, err)
	r := &rig{t: t, dev: dev, model: model}
	r.config = runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: runner.Spaces(dev),
		Losses:    []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Gradients: dev, Seed: drawSeed,
		Hooks: runner.Hooks{Action: func(_ int, a schedule.Action) { r.actions = append(r.actions, a.WithDrop(0)) }},
		Plan:  runner.Plan{Rule: v.rule, Group: v.group, LookAhead: v.lookAhead},
	}
	for _, c := range change {
		c(&r.config)
	}
	r.runner, err = runner.New(r.config)
	require.NoError(t, err)
	return r
}

// close closes the model and requires that nothing else is live.
func (r *rig) close() {
	require.NoError(r.t, r.runner.Close())
	require.NoError(r.t, r.model.Close())
	require.Zero(r.t, r.dev.Live(), "bytes live after the model was closed")
	require.NoError(r.t, r.dev.Close())
}

// source provides exactly the sequences of a batch.
func (r *rig) source(batch []reference.Sequence) runner.Source[kernels.Buffer] {
	r.actions, r.pulls = r.actions[:0], r.pulls[:0]
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
		k := entry.Index()
		require.Less(r.t, k, len(batch), "the source is asked for more than the step has")
		if len(r.actions) > 0 { // with -tags invariants it is also called before the first action
			require.Equal(r.t, len(r.pulls), k, "entries are asked for in ascending order")
			r.pulls = append(r.pulls, r.actions[len(r.actions)-1])
		}
		s := batch[k]
		transformer.Put(r.dev, entry, s.Tokens, s.Labels, s.Weights)
		return nil
	})
}

// step trains on a batch, without an update.
func (r *rig) step(batch []reference.Sequence) *runner.Result {
	r.t.Helper()
	result, err := r.runner.Step(context.Background(), len(batch), r.source(batch))
	require.NoError(r.t, err)
	require.Len(r.t, r.pulls, len(batch), "the source was asked exactly M times")
	return result
}

// evaluate runs a batch forward only.
func (r *rig) evaluate(batch []reference.Sequence) *runner.Result {
	r.t.Helper()
	result, err := r.runner.Evaluate(context.Background(), len(batch), r.source(batch))
	require.NoError(r.t, err)
	require.Len(r.t, r.pulls, len(batch), "the source was asked exactly M times")
	return result
}

// numbers has everything that a step computes, as bits, so that equal means bit-equal and 0
// differs from -0.
type numbers struct {
	sum, weight, norm uint64
	tensors           map[string][]uint32
}

func read(t testing.TB, dev kernels.Device, b kernels.Buffer) []float32 {
	t.Helper()
	x := make([]float32, b.N)
	require.NoError(t, dev.ReadFloat32(x, b))
	return x
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

// tensor adds the bits of a buffer.
func (n *numbers) tensor(t testing.TB, dev kernels.Device, name string, b kernels.Buffer) {
	if n.tensors == nil {
		n.tensors = map[string][]uint32{}
	}
	n.tensors[name] = bits(read(t, dev, b))
}

// train runs a step with an update for each batch.
func (r *rig) train(batches [][]reference.Sequence) []numbers {
	r.t.Helper()
	var history []numbers
	for _, batch := range batches {
		result := r.step(batch)
		require.Equal(r.t, loss.Stepped, result.Outcome)
		v := result.Losses[0]
		n := numbers{sum: math.Float64bits(v.Sum), weight: math.Float64bits(v.Weight), norm: math.Float64bits(result.GradNorm)}
		for _, p := range r.model.Parameters() {
			n.tensor(r.t, r.dev, p.Name+" gradient", p.Grad)
		}
		require.Greater(r.t, result.GradNorm, maxNorm, "the gradient is clipped")
		require.NoError(r.t, r.model.Update(update, result, maxNorm))
		for _, p := range r.model.Parameters() {
			n.tensor(r.t, r.dev, p.Name+" weight", p.Weight)
			n.tensor(r.t, r.dev, p.Name+" first moment", p.M)
			n.tensor(r.t, r.dev, p.Name+" second moment", p.V)
		}
		history = append(history, n)
	}
	return history
}

// trainReference does the same without a runner.
func trainReference(t testing.TB, cfg transformer.Config, batches [][]reference.Sequence) []numbers {
	t.Helper()
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	model, err := reference.New(dev, reference.Config{
		Vocabulary: cfg.Vocabulary, Width: cfg.Width, Layers: cfg.Layers, Heads: cfg.Heads, Context: cfg.Context,
		Dropout: cfg.Dropout, Untied: cfg.Untied, Seed: cfg.Seed,
	})
	require.NoError(t, err)
	var history []numbers
	for step, batch := range batches {
		totals, err := model.Step(int64(step), drawSeed, batch)
		require.NoError(t, err)
		n := numbers{
			sum: math.Float64bits(totals.Sum), weight: math.Float64bits(totals.Weight), norm: math.Float64bits(totals.GradNorm),
		}
		for _, p := range model.Parameters {
			n.tensor(t, dev, p.Name+" gradient", p.Grad)
		}
		require.NoError(t, model.Update(reference.AdamW(update), totals, maxNorm))
		for _, p := range model.Parameters {
			n.tensor(t, dev, p.Name+" weight", p.Weight)
			n.tensor(t, dev, p.Name+" first moment", p.M)
			n.tensor(t, dev, p.Name+" second moment", p.V)
		}
		history = append(history, n)
	}
	return history
}

// requireSame requires that two runs have the same numbers to the bit, and reports the first
// difference.
func requireSame(t testing.TB, want, have []numbers) {
	t.Helper()
	require.Len(t, have, len(want))
	for step := range want {
		w, h := &want[step], &have[step]
		require.Equal(t, slices.Sorted(maps.Keys(w.tensors)), slices.Sorted(maps.Keys(h.tensors)))
		for _, name := range slices.Sorted(maps.Keys(w.tensors)) {
			if i := firstDifference(w.tensors[name], h.tensors[name]); i >= 0 {
				require.Fail(t, "numbers differ", "step %d, %s, element %d of %d: %v and %v", step, name, i, len(w.tensors[name]),
					math.Float32frombits(w.tensors[name][i]), math.Float32frombits(h.tensors[name][i]))
			}
		}
		for _, n := range []struct {
			name string
			w, h uint64
		}{{"loss sum", w.sum, h.sum}, {"loss weight", w.weight, h.weight}, {"gradient norm", w.norm, h.norm}} {
			require.Equal(t, n.w, n.h, "step %d, %s: %v and %v", step, n.name, math.Float64frombits(n.w), math.Float64frombits(n.h))
		}
	}
}

// firstDifference returns the first index at which a and b differ, or -1.
func firstDifference(a, b []uint32) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func (v variant) String() string {
	return fmt.Sprintf("group %d, %d stages, recompute %t, look-ahead %d", v.group, v.stages, v.recompute, v.lookAhead)
}

// factorOf takes the factor of a step.
func factorOf(r *runner.Result) (factor float64, err error) {
	err = r.Update(func(f float64) error { factor = f; return nil })
	return factor, err
}
