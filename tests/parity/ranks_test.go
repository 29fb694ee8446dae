package parity_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
	reference "github.com/weir-ml/weir/tests/parity"
)

// capacities lists capacities of the links, which the tests use in turn.
var capacities = []int{1, 0, schedule.Unlimited, 2}

// TestRanksSameNumbers checks L9 on one to four ranks for every schedule with an ascending
// backward: three steps with dropout, a tied table and uneven microbatches give the losses,
// gradients, moments and weights of a sequential loop over kernels. With one stage per rank the
// embedding is on the first rank and the head is on the last one; with stages in a V both are on the
// same rank.
func TestRanksSameNumbers(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	batches := threeBatches()
	want := trainReference(t, small(), batches)
	run := 0
	for ranks := 1; ranks <= 4; ranks++ {
		for _, s := range schedule.Schedules() {
			if !s.AscendingBackward {
				continue
			}
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			for _, recompute := range []bool{false, true} {
				way := variant{
					rule: s.Rule, placement: placement, recompute: recompute,
					capacity: capacities[run%len(capacities)], lookAhead: run % 3,
				}
				run++
				t.Run(fmt.Sprintf("%s on %d ranks, capacity %d, recompute %v", s.Name, ranks, way.capacity, recompute), func(t *testing.T) {
					r := newRig(t, small(), way)
					defer r.close()
					requireSame(t, want, r.train(batches))
				})
			}
		}
	}
}

// TestRanksAnyPlacement covers placements that no schedule uses: with several modules in a stage, with the
// two uses of the table on adjacent or distant stages, with a rank without stages, and with ranks out of
// order.
func TestRanksAnyPlacement(t *testing.T) {
	t.Parallel()
	batches := threeBatches()
	want := trainReference(t, small(), batches)
	place := func(ranks int, rank ...int) schedule.Placement {
		return schedule.Placement{Ranks: ranks, Rank: rank}
	}
	for i, way := range []variant{
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
			r := newRig(t, small(), way)
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
		require.NotEqual(t, tied[0].sum, want[0].sum, "the models are different")
		for _, plan := range []string{"1f1b", "zb-v", "interleaved"} {
			t.Run(name+", "+plan, func(t *testing.T) {
				s, placement := plantest.Find(t, plan, 3, 0)
				r := newRig(t, cfg, variant{rule: s.Rule, placement: placement, capacity: 1})
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
		one := newRig(t, cfg, variant{rule: schedule.DepthFirst, placement: schedule.Looped(1, 5), change: change})
		want := one.gradients(batch)
		one.close()
		for plan, rule := range map[string]schedule.Rule{"breadth-first": schedule.BreadthFirst, "1f1b": schedule.OneFOneB, "zb-h1": schedule.ZBH1} {
			t.Run(name+", "+plan, func(t *testing.T) {
				placement := schedule.Looped(3, 5)
				if plan != "breadth-first" {
					placement.Rank = []int{0, 0, 1, 1, 2}
				}
				r := newRig(t, cfg, variant{rule: rule, placement: placement, change: change, capacity: 1})
				defer r.close()
				requireSame(t, want, r.gradients(batch))
			})
		}
	}
}

// gradients runs a step without an update.
func (r *rig) gradients(batch []reference.Sequence) []numbers {
	r.t.Helper()
	return []numbers{r.numbers(r.step(batch))}
}

// disordered lists variants with the plans that are exceptions to L9, because their backwards run out of order.
var disordered = map[string]variant{
	"dualpipe":                 {rule: schedule.DualPipe, placement: schedule.Bidirectional(2)},
	"dualpipe on 4 ranks":      {rule: schedule.DualPipe, placement: schedule.Bidirectional(4), capacity: 1},
	"seq1f1b":                  {rule: schedule.Seq1F1B, placement: schedule.Looped(2, 2), slices: 2},
	"seq1f1b, four slices":     {rule: schedule.Seq1F1B, placement: schedule.Looped(3, 3), slices: 4, capacity: 2},
	"breadth-first descending": {rule: schedule.BreadthFirstDescending, placement: schedule.Looped(2, 4), capacity: 1},
}

// nearly is the maximum difference, relative to the norm of all tensors, of sums of the same
// terms in another order.
const nearly = 1e-6

// apartBy returns the norm of the difference between two lists of tensors, relative to the norm of the
// first list, over all tensors whose names have the suffix.
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

// TestRanksNearlySame runs the plans that are exceptions to L9, because their backwards run out of order.
// Losses are equal to the bit, because their sums are exact; gradients are equal up to rounding. All ranks
// with a copy of a parameter have the same copy.
func TestRanksNearlySame(t *testing.T) {
	t.Parallel()
	cfg := small()
	batch := threeBatches()[0]
	want := trainReference(t, cfg, [][]reference.Sequence{batch})[0]
	for name, way := range disordered {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cfg, way)
			defer r.close()
			have := r.gradients(batch)[0]
			require.Equal(t, want.sum, have.sum)
			require.InEpsilon(t, math.Float64frombits(want.norm), math.Float64frombits(have.norm), nearly)
			require.NotEqual(t, want.norm, have.norm, "the orders of sums are different")
			require.Less(t, apartBy(t, &want, &have, " gradient"), nearly)
		})
	}
}

// TestRanksEvaluate runs forward only and requires the losses of one rank.
func TestRanksEvaluate(t *testing.T) {
	t.Parallel()
	batch := threeBatches()[1]
	one := newRig(t, small(), oneRank(schedule.DepthFirst, 3))
	want := one.evaluate(batch)
	one.close()
	for _, s := range schedule.Schedules() {
		for ranks := 1; ranks <= 3; ranks++ {
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			for _, m := range []int{len(batch), 1} {
				r := newRig(t, small(), variant{rule: s.Rule, placement: placement, capacity: 1})
				have := r.evaluate(batch[:m])
				if m == len(batch) {
					require.Equal(t, want.Losses, have.Losses, "%s on %d ranks", s.Name, ranks)
				}
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
			if !s.AscendingBackward {
				continue
			}
			placement, err := s.Place(4, 4*s.PerRank)
			require.NoError(t, err)
			t.Run(fmt.Sprintf("%s, %d microbatches", s.Name, m), func(t *testing.T) {
				r := newRig(t, small(), variant{rule: s.Rule, placement: placement, capacity: 1})
				defer r.close()
				requireSame(t, want, r.train(batches))
			})
		}
	}
}
