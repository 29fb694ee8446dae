package parity_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
	reference "github.com/weir-ml/weir/tests/parity"
)

// spread is a way to run the model on ranks.
type spread struct {
	rule       schedule.Rule
	placement  schedule.Placement
	group, cap int
	slices     int
	capacity   int // of the links
	recompute  bool
	lookAhead  int
	change     func(list []stages.Stage[kernels.Buffer])
}

// ranked is a model on a device for each rank, with a runner for each.
type ranked struct {
	t     testing.TB
	devs  []*kernels.Host
	model *transformer.Model
	group *runner.Runner[kernels.Buffer]
}

func newRanked(t testing.TB, cfg transformer.Config, s spread) *ranked {
	t.Helper()
	r := &ranked{t: t}
	for range s.placement.Ranks {
		dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
		require.NoError(t, err)
		r.devs = append(r.devs, dev)
	}
	places := make([][]kernels.Compute, max(s.placement.Copies, 1))
	for stage, rank := range s.placement.Rank {
		places[stage/s.placement.Depth()] = append(places[stage/s.placement.Depth()], r.devs[rank])
	}
	cfg.Recompute = s.recompute
	var err error
	r.model, err = transformer.NewOn(cfg, places...)
	require.NoError(t, err)
	list := r.model.Stages()
	if s.change != nil {
		s.change(list)
	}
	ranks := runner.Config[kernels.Buffer]{
		Stages: list, Seed: drawSeed,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Plan:   runner.Plan{Placement: s.placement, Rule: s.rule, Group: s.group, Cap: s.cap, Slices: s.slices, LookAhead: s.lookAhead},
		World: runner.World[kernels.Buffer]{
			Capacity: s.capacity,
		},
	}
	for _, dev := range r.devs {
		ranks.Spaces = append(ranks.Spaces, dev)
	}
	r.group, err = runner.New(ranks)
	require.NoError(t, err)
	return r
}

// close closes the model and requires that nothing else is live on any rank.
func (r *ranked) close() {
	require.NoError(r.t, r.group.Close())
	require.NoError(r.t, r.model.Close())
	for rank, dev := range r.devs {
		require.Zero(r.t, dev.Live(), "bytes live on rank %d after the model was closed", rank)
		require.NoError(r.t, dev.Close())
	}
}

// sources provides every rank with the sequences of a batch; each rank calls for each of them
// once, in order. Parts that no stage of the rank reads are not made.
func (r *ranked) sources(batch []reference.Sequence) (all runner.Source[kernels.Buffer], asked []int) {
	var list []runner.Source[kernels.Buffer]
	asked = make([]int, len(r.devs))
	for rank, dev := range r.devs {
		source := runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			k := entry.Index()
			if k != asked[rank] || k >= len(batch) {
				return fmt.Errorf("rank %d asks for the entry of microbatch %d after %d of %d", rank, k, asked[rank], len(batch))
			}
			asked[rank]++
			s := batch[k]
			transformer.Put(dev, entry, s.Tokens, s.Labels, s.Weights)
			return nil
		})
		// With -tags invariants the runner calls a source of runner.Indexed twice.
		list = append(list, struct{ runner.Source[kernels.Buffer] }{source})
	}
	return runner.PerRank(list...), asked
}

// step trains on a batch, without an update.
func (r *ranked) step(batch []reference.Sequence) *runner.Result {
	r.t.Helper()
	sources, asked := r.sources(batch)
	result, err := r.group.Step(context.Background(), len(batch), sources)
	require.NoError(r.t, err)
	for rank := range asked {
		require.Equal(r.t, len(batch), asked[rank], "entries that rank %d has asked for", rank)
	}
	require.Equal(r.t, 2, result.Books)
	require.Zero(r.t, result.Excess)
	require.Zero(r.t, result.Growth.Bytes)
	return result
}

// train runs a step with an update for each batch.
func (r *ranked) train(batches [][]reference.Sequence) []numbers {
	r.t.Helper()
	var history []numbers
	for _, batch := range batches {
		result := r.step(batch)
		require.Equal(r.t, loss.Stepped, result.Outcome)
		v := result.Losses[0]
		n := numbers{sum: math.Float64bits(v.Sum), weight: math.Float64bits(v.Weight), norm: math.Float64bits(result.GradNorm)}
		r.tensors(&n, " gradient", func(c transformer.Copy) kernels.Buffer { return c.Grad })
		n.roll(r.t, r.model)
		require.NoError(r.t, r.model.Update(update, result, maxNorm))
		r.tensors(&n, " weight", func(c transformer.Copy) kernels.Buffer { return c.Weight })
		r.tensors(&n, " first moment", func(c transformer.Copy) kernels.Buffer { return c.M })
		r.tensors(&n, " second moment", func(c transformer.Copy) kernels.Buffer { return c.V })
		history = append(history, n)
	}
	return history
}

// tensors adds a buffer of every parameter, and requires that all ranks with a copy of it have
// the same.
func (r *ranked) tensors(n *numbers, quantity string, of func(c transformer.Copy) kernels.Buffer) {
	r.t.Helper()
	for _, p := range r.model.Parameters() {
		n.tensor(r.t, p.Device, p.Name+quantity, of(p.Copy))
		for _, other := range p.Others {
			same := firstDifference(n.tensors[p.Name+quantity], bits(read(r.t, other.Device, of(other))))
			require.Negative(r.t, same, "%s%s differs between two ranks from element %d on", p.Name, quantity, same)
		}
	}
}

// capacities are capacities of the links, used alternately.
var capacities = []int{1, 0, schedule.Unlimited, 2}

// TestRanksSameNumbers checks L9 on one to four ranks for every schedule with an ascending
// backward: three steps with dropout, a tied table and uneven microbatches give the losses,
// gradients, moments and weights of a sequential loop over kernels. With one stage per rank the
// embedding is on the first rank and the head on the last one; on a V both are on the same
// rank.
func TestRanksSameNumbers(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	batches := threeBatches()
	want := trainReference(t, small(), batches)
	run := 0
	for ranks := 1; ranks <= 4; ranks++ {
		for _, s := range schedule.Schedules() {
			if !s.Ascends {
				continue
			}
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			for _, recompute := range []bool{false, true} {
				way := spread{
					rule: s.Rule, placement: placement, recompute: recompute,
					capacity: capacities[run%len(capacities)], lookAhead: run % 3,
				}
				run++
				t.Run(fmt.Sprintf("%s on %d ranks, capacity %d, recompute %v", s.Name, ranks, way.capacity, recompute), func(t *testing.T) {
					r := newRanked(t, small(), way)
					defer r.close()
					requireSame(t, want, r.train(batches))
				})
			}
		}
	}
}

// TestRanksAnyPlacement places stages as no schedule does: several parts in a stage, the two
// uses of the table adjacent and apart, a rank with nothing, ranks visited out of order.
func TestRanksAnyPlacement(t *testing.T) {
	t.Parallel()
	batches := threeBatches()
	want := trainReference(t, small(), batches)
	place := func(ranks int, rank ...int) schedule.Placement {
		return schedule.Placement{Ranks: ranks, Rank: rank}
	}
	for i, way := range []spread{
		{rule: schedule.DepthFirst, placement: place(2, 0, 1, 0)},
		{rule: schedule.DepthFirst, placement: place(3, 2, 0, 1, 0, 2), cap: 2},
		{rule: schedule.DepthFirst, placement: place(3, 1, 1, 0, 0, 2, 2, 1)},
		{rule: schedule.BreadthFirst, placement: place(2, 1, 0, 0, 1, 1)},
		{rule: schedule.BreadthFirst, placement: place(4, 3, 1, 3, 0)},
		{rule: schedule.GPipe, placement: place(4, 0, 0, 1)},
		{rule: schedule.OneFOneB, placement: place(2, 0, 0, 1, 1)},
		{rule: schedule.ZBH2, placement: place(2, 0, 1), cap: 3},
		{rule: schedule.Interleaved, placement: schedule.Looped(2, 6), group: 3},
		{rule: schedule.Seq1F1B, placement: schedule.Looped(3, 3)},
	} {
		way.capacity = capacities[i%len(capacities)]
		t.Run(fmt.Sprintf("%d: %v, capacity %d", i, way.placement.Rank, way.capacity), func(t *testing.T) {
			r := newRanked(t, small(), way)
			defer r.close()
			requireSame(t, want, r.train(batches))
		})
	}
}

// TestRanksUntied compares a model with a separate table for the head, and one without dropout.
func TestRanksUntied(t *testing.T) {
	t.Parallel()
	batches := threeBatches()
	tied := trainReference(t, small(), batches[:1])
	for name, change := range map[string]func(*transformer.Config){
		"untied":     func(c *transformer.Config) { c.Untied = true },
		"no dropout": func(c *transformer.Config) { c.Dropout = 0 },
	} {
		cfg := small()
		change(&cfg)
		want := trainReference(t, cfg, batches)
		require.NotEqual(t, tied[0].sum, want[0].sum, "the model is another one")
		for _, plan := range []string{"1f1b", "zb-v", "interleaved"} {
			t.Run(name+", "+plan, func(t *testing.T) {
				s, err := schedule.Find(plan)
				require.NoError(t, err)
				placement, err := s.Place(3, 3*s.PerRank)
				require.NoError(t, err)
				r := newRanked(t, cfg, spread{rule: s.Rule, placement: placement, capacity: 1})
				defer r.close()
				requireSame(t, want, r.train(batches))
			})
		}
	}
}

// TestRanksFrozen freezes parts of the model and requires the gradients of one rank.
func TestRanksFrozen(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.Untied = true
	batch := threeBatches()[0]
	for name, frozen := range map[string][]int{
		"a prefix": {0, 1}, "in between": {2}, "the head": {4}, "all but the head": {0, 1, 2, 3}, "all but the embedding": {1, 2, 3, 4},
	} {
		change := func(list []stages.Stage[kernels.Buffer]) {
			for _, s := range frozen {
				list[s] = stages.Freeze(list[s])
			}
		}
		one := newRanked(t, cfg, spread{rule: schedule.DepthFirst, placement: schedule.Looped(1, 5), change: change})
		want := one.gradients(batch)
		one.close()
		for plan, rule := range map[string]schedule.Rule{"breadth-first": schedule.BreadthFirst, "1f1b": schedule.OneFOneB, "zb-h1": schedule.ZBH1} {
			t.Run(name+", "+plan, func(t *testing.T) {
				placement := schedule.Looped(3, 5)
				if plan != "breadth-first" {
					placement.Rank = []int{0, 0, 1, 1, 2}
				}
				r := newRanked(t, cfg, spread{rule: rule, placement: placement, change: change, capacity: 1})
				defer r.close()
				requireSame(t, want, r.gradients(batch))
			})
		}
	}
}

// gradients runs a step without an update.
func (r *ranked) gradients(batch []reference.Sequence) []numbers {
	r.t.Helper()
	result := r.step(batch)
	n := numbers{sum: math.Float64bits(result.Losses[0].Sum), norm: math.Float64bits(result.GradNorm)}
	r.tensors(&n, " gradient", func(c transformer.Copy) kernels.Buffer { return c.Grad })
	n.roll(r.t, r.model)
	return []numbers{n}
}

// disordered are ways to run the plans that are exceptions of L9, whose backward does not
// ascend.
var disordered = map[string]spread{
	"dualpipe":                 {rule: schedule.DualPipe, placement: schedule.Bidirectional(2)},
	"dualpipe on 4 ranks":      {rule: schedule.DualPipe, placement: schedule.Bidirectional(4), capacity: 1},
	"seq1f1b":                  {rule: schedule.Seq1F1B, placement: schedule.Looped(2, 2), slices: 2},
	"seq1f1b, four slices":     {rule: schedule.Seq1F1B, placement: schedule.Looped(3, 3), slices: 4, capacity: 2},
	"breadth-first descending": {rule: schedule.BreadthFirstDescending, placement: schedule.Looped(2, 4), capacity: 1},
}

// nearly is the maximum difference, relative to the norm of all tensors, of sums of the same
// terms in another order.
const nearly = 1e-6

// apartBy returns the norm of the difference of two lists of tensors, relative to the norm of
// the first one, over all tensors whose names have the suffix.
func apartBy(t testing.TB, want, have *numbers, suffix string) float64 {
	t.Helper()
	var difference, norm float64
	for _, tensor := range slices.Sorted(maps.Keys(want.tensors)) {
		if !strings.HasSuffix(tensor, suffix) {
			continue
		}
		w, h := want.tensors[tensor], have.tensors[tensor]
		require.Len(t, h, len(w), tensor)
		for i := range h {
			x, y := float64(math.Float32frombits(w[i])), float64(math.Float32frombits(h[i]))
			difference += (x - y) * (x - y)
			norm += x * x
		}
	}
	require.Positive(t, norm, "tensors of a%s", suffix)
	return math.Sqrt(difference / norm)
}

// TestRanksNearlySame runs the plans that are exceptions of L9, whose backward does not ascend:
// losses are the same to the bit, because their sums are exact, and gradients within rounding.
// Every rank with a copy of a parameter has the same one.
func TestRanksNearlySame(t *testing.T) {
	t.Parallel()
	cfg := small()
	batch := threeBatches()[0]
	want := trainReference(t, cfg, [][]reference.Sequence{batch})[0]
	for name, way := range disordered {
		t.Run(name, func(t *testing.T) {
			r := newRanked(t, cfg, way)
			defer r.close()
			have := r.gradients(batch)[0]
			require.Equal(t, want.sum, have.sum)
			require.InEpsilon(t, math.Float64frombits(want.norm), math.Float64frombits(have.norm), nearly)
			require.NotEqual(t, want.norm, have.norm, "the order of sums is another one")
			require.Less(t, apartBy(t, &want, &have, " gradient"), nearly)
		})
	}
}

// TestRanksEvaluate runs forward only and requires the losses of one rank.
func TestRanksEvaluate(t *testing.T) {
	t.Parallel()
	batch := threeBatches()[1]
	one := newRig(t, small(), variant{schedule.DepthFirst, 0, 3, false, 0})
	want := one.evaluate(batch)
	one.close()
	for _, s := range schedule.Schedules() {
		for ranks := 1; ranks <= 3; ranks++ {
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			for _, m := range []int{len(batch), 1} {
				r := newRanked(t, small(), spread{rule: s.Rule, placement: placement, capacity: 1})
				sources, _ := r.sources(batch[:m])
				have, err := r.group.Evaluate(context.Background(), m, sources)
				require.NoError(t, err, "%s on %d ranks", s.Name, ranks)
				if m == len(batch) {
					require.Equal(t, want.Losses, have.Losses, "%s on %d ranks", s.Name, ranks)
				}
				require.Zero(t, have.Growth.Bytes)
				r.close()
			}
		}
	}
}

// TestRanksFewMicrobatches trains on fewer microbatches than ranks, down to one.
func TestRanksFewMicrobatches(t *testing.T) {
	t.Parallel()
	for m := 1; m <= 3; m++ {
		batches := threeBatches()
		for i := range batches {
			batches[i] = slices.Clone(batches[i][:m])
		}
		want := trainReference(t, small(), batches)
		for _, s := range schedule.Schedules() {
			if !s.Ascends {
				continue
			}
			placement, err := s.Place(4, 4*s.PerRank)
			require.NoError(t, err)
			t.Run(fmt.Sprintf("%s, %d microbatches", s.Name, m), func(t *testing.T) {
				r := newRanked(t, small(), spread{rule: s.Rule, placement: placement, capacity: 1})
				defer r.close()
				requireSame(t, want, r.train(batches))
			})
		}
	}
}
