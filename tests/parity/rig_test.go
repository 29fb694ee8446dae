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
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
	reference "github.com/weir-ml/weir/tests/parity"
)

// small returns the configuration of the model of these tests, with dropout and a tied table.
func small() transformer.Config {
	return transformer.Config{Vocabulary: 32, Width: 16, Layers: 3, Heads: 2, Context: 16, Dropout: 0.2, Seed: 11}
}

// drawSeed is the runner's seed of dropout.
const drawSeed = 5

// update is the optimizer of these tests. The maximum norm is low enough to clip.
var update = transformer.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}

const maxNorm = 0.5

// unevenBatch returns sequences of the given lengths. Their weights differ as well, and some are 0.
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

// variant is a configuration of a run.
type variant struct {
	rule       schedule.Rule
	placement  schedule.Placement
	group, cap int
	slices     int
	capacity   int // of the links
	recompute  bool
	lookAhead  int
	change     func(list []stages.Stage[kernels.Buffer])
}

// oneRank returns a variant with the given number of stages on one rank.
func oneRank(rule schedule.Rule, stages int) variant {
	return variant{rule: rule, placement: schedule.Looped(1, stages)}
}

// rig is a model on a device for each rank, with a runner.
type rig struct {
	t      testing.TB
	devs   []*kernels.Host // by rank
	dev    *kernels.Host   // of rank 0
	model  *transformer.Model
	runner *runner.Runner[kernels.Buffer]
	// Of the last step, with one rank.
	actions []schedule.Action // without drops
	pulls   []schedule.Action // by microbatch: the action that pulled its entry
}

func newRig(t testing.TB, cfg transformer.Config, v variant, change ...func(*runner.Config[kernels.Buffer])) *rig {
	t.Helper()
	r := &rig{t: t}
	for range v.placement.Ranks {
		dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
		require.NoError(t, err)
		r.devs = append(r.devs, dev)
	}
	r.dev = r.devs[0]
	places := make([][]kernels.Compute, max(v.placement.Copies, 1))
	for stage, rank := range v.placement.Rank {
		places[stage/v.placement.Depth()] = append(places[stage/v.placement.Depth()], r.devs[rank])
	}
	cfg.Recompute = v.recompute
	var err error
	r.model, err = transformer.NewOn(cfg, places...)
	require.NoError(t, err)
	list := r.model.Stages()
	if v.change != nil {
		v.change(list)
	}
	config := runner.Config[kernels.Buffer]{
		Stages: list, Seed: drawSeed,
		Losses:   []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Plan:     runner.Plan{Placement: v.placement, Rule: v.rule, Group: v.group, Cap: v.cap, Slices: v.slices, LookAhead: v.lookAhead},
		Topology: runner.Topology[kernels.Buffer]{Capacity: v.capacity},
	}
	for _, dev := range r.devs {
		config.Spaces = append(config.Spaces, dev)
	}
	if v.placement.Ranks == 1 {
		config.Hooks.Action = func(_ int, a schedule.Action) { r.actions = append(r.actions, a.WithDrop(0)) }
	}
	for _, c := range change {
		c(&config)
	}
	r.runner, err = runner.New(config)
	require.NoError(t, err)
	return r
}

// close closes the model and requires that nothing else is live on any rank.
func (r *rig) close() {
	require.NoError(r.t, r.runner.Close())
	require.NoError(r.t, r.model.Close())
	for rank, dev := range r.devs {
		require.Zero(r.t, dev.Live(), "bytes live on rank %d after the model was closed", rank)
		require.NoError(r.t, dev.Close())
	}
}

// sources provides every rank with the sequences of a batch, which each rank must request once, in
// order. It counts the requests of each rank.
func (r *rig) sources(batch []reference.Sequence) (all runner.Source[kernels.Buffer], requests []int) {
	r.actions, r.pulls = r.actions[:0], r.pulls[:0]
	var list []runner.Source[kernels.Buffer]
	requests = make([]int, len(r.devs))
	for rank, dev := range r.devs {
		source := runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			k := entry.Index()
			if k != requests[rank] || k >= len(batch) {
				return fmt.Errorf("rank %d requests the entry of microbatch %d after %d of %d", rank, k, requests[rank], len(batch))
			}
			requests[rank]++
			if len(r.devs) == 1 {
				r.pulls = append(r.pulls, r.actions[len(r.actions)-1])
			}
			s := batch[k]
			transformer.Put(dev, entry, s.Tokens, s.Labels, s.Weights)
			return nil
		})
		// With -tags invariants the runner calls a source of runner.Indexed twice.
		list = append(list, struct{ runner.Source[kernels.Buffer] }{source})
	}
	return runner.PerRank(list...), requests
}

// step trains on a batch, without an update.
func (r *rig) step(batch []reference.Sequence) *runner.Result {
	r.t.Helper()
	return r.run(r.runner.Step, batch)
}

// evaluate runs a batch forward only.
func (r *rig) evaluate(batch []reference.Sequence) *runner.Result {
	r.t.Helper()
	return r.run(r.runner.Evaluate, batch)
}

func (r *rig) run(step func(context.Context, int, runner.Source[kernels.Buffer]) (*runner.Result, error), batch []reference.Sequence) *runner.Result {
	r.t.Helper()
	sources, requests := r.sources(batch)
	result, err := step(context.Background(), len(batch), sources)
	require.NoError(r.t, err)
	for rank, n := range requests {
		require.Equal(r.t, len(batch), n, "entries that rank %d has requested", rank)
	}
	require.Equal(r.t, 2, result.Books)
	require.Zero(r.t, result.Excess)
	require.Zero(r.t, result.Growth.Bytes)
	return result
}

// numbers contains all results of a step as bits, so that 0 differs from -0 and equal NaNs are
// equal.
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
		n := r.numbers(result)
		require.NoError(r.t, r.model.Update(update, result, maxNorm))
		r.tensors(&n, " weight", func(c transformer.Copy) kernels.Buffer { return c.Weight })
		r.tensors(&n, " first moment", func(c transformer.Copy) kernels.Buffer { return c.M })
		r.tensors(&n, " second moment", func(c transformer.Copy) kernels.Buffer { return c.V })
		history = append(history, n)
	}
	return history
}

// numbers returns the numbers of a step before its update. It rolls the scales of a model in FP8.
func (r *rig) numbers(result *runner.Result) numbers {
	r.t.Helper()
	v := result.Losses[0]
	n := numbers{sum: math.Float64bits(v.Sum), weight: math.Float64bits(v.Weight), norm: math.Float64bits(result.GradNorm)}
	r.tensors(&n, " gradient", func(c transformer.Copy) kernels.Buffer { return c.Grad })
	n.roll(r.t, r.model)
	return n
}

// tensors adds a buffer of every parameter, and requires that all ranks with a copy of it have
// the same.
func (r *rig) tensors(n *numbers, quantity string, of func(c transformer.Copy) kernels.Buffer) {
	r.t.Helper()
	for _, p := range r.model.Parameters() {
		n.tensor(r.t, p.Device, p.Name+quantity, of(p.Copy))
		for _, other := range p.Others {
			same := firstDifference(n.tensors[p.Name+quantity], bits(read(r.t, other.Device, of(other))))
			require.Negative(r.t, same, "%s%s differs between two ranks from element %d on", p.Name, quantity, same)
		}
	}
}

// trainReference is train without a runner.
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
		require.Greater(t, totals.GradNorm, maxNorm, "the gradient is clipped")
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

// factorOf takes the factor of a step.
func factorOf(r *runner.Result) (factor float64, err error) {
	err = r.Update(func(f float64) error { factor = f; return nil })
	return factor, err
}
