package parity_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	reference "github.com/weir-ml/weir/tests/parity"
)

const microbatches = 6

// threeBatches returns batches of six uneven microbatches, among them a single token, the whole context,
// and one whose labels all have weight 0.
func threeBatches() [][]reference.Sequence {
	batches := [][]reference.Sequence{
		unevenBatch(1, 32, 7, 1, 16, 4, 9, 3),
		unevenBatch(2, 32, 2, 11, 5, 16, 1, 8),
		unevenBatch(3, 32, 16, 3, 3, 6, 2, 12),
	}
	clear(batches[1][2].Weights)
	return batches
}

// orders lists rules whose plans order actions differently.
var orders = []struct {
	name  string
	rule  schedule.Rule
	group int
}{
	{"depth-first", schedule.DepthFirst, 0},
	{"groups of 2", schedule.DepthFirst, 2},
	{"groups of 4 and the rest", schedule.DepthFirst, 4},
	{"one group", schedule.DepthFirst, microbatches},
	{"breadth-first", schedule.BreadthFirst, 0},
}

// TestSameNumbers checks L9: three steps with dropout, a tied table and uneven microbatches
// give the same losses, gradients, moments and weights, bit for bit, whatever the order of
// actions, the split, recompute and look-ahead, and they equal those of a sequential loop over
// kernels.
func TestSameNumbers(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	batches := threeBatches()
	want := trainReference(t, small(), batches)
	for stages := 1; stages <= small().Layers+3; stages++ { // the last split has an identity
		ran := map[string]string{} // the name of the rule by its order of actions
		for _, order := range orders {
			for _, recompute := range []bool{false, true} {
				for _, lookAhead := range []int{0, 1, 3, microbatches} {
					v := variant{
						rule: order.rule, placement: schedule.Looped(1, stages), group: order.group, recompute: recompute, lookAhead: lookAhead,
					}
					r := newRig(t, small(), v)
					requireSame(t, want, r.train(batches))
					requirePulls(t, r.pulls, lookAhead)
					ran[fmt.Sprint(r.actions)] = order.name
					require.Len(t, r.actions, 2*stages*microbatches)
					r.close()
				}
			}
		}
		// A single group of all microbatches is breadth-first. All other groups differ from it.
		require.Len(t, ran, len(orders)-1, "%d stages: orders that ran", stages)
	}
}

// requirePulls requires that each entry was pulled by the forward that needs it, or by the
// forward lookAhead microbatches earlier.
func requirePulls(t testing.TB, pulls []schedule.Action, lookAhead int) {
	t.Helper()
	for k, by := range pulls {
		require.Equal(t, schedule.NewAction(schedule.F, 0, max(k-lookAhead, 0)), by, "the entry of microbatch %d, look-ahead %d", k, lookAhead)
	}
}

// TestOrdersDiffer states the orders for two stages and three microbatches, to show that the
// test above compares different orders.
func TestOrdersDiffer(t *testing.T) {
	t.Parallel()
	act := func(kind schedule.Kind, stage, mb int) schedule.Action { return schedule.NewAction(kind, stage, mb) }
	const f, b = schedule.F, schedule.B
	for name, c := range map[string]struct {
		variant
		want []schedule.Action
	}{
		"depth-first": {oneRank(schedule.DepthFirst, 2), []schedule.Action{
			act(f, 0, 0), act(f, 1, 0), act(b, 1, 0), act(b, 0, 0),
			act(f, 0, 1), act(f, 1, 1), act(b, 1, 1), act(b, 0, 1),
			act(f, 0, 2), act(f, 1, 2), act(b, 1, 2), act(b, 0, 2),
		}},
		"groups of two": {variant{rule: schedule.DepthFirst, placement: schedule.Looped(1, 2), group: 2}, []schedule.Action{
			act(f, 0, 0), act(f, 0, 1), act(f, 1, 0), act(f, 1, 1), act(b, 1, 0), act(b, 1, 1), act(b, 0, 0), act(b, 0, 1),
			act(f, 0, 2), act(f, 1, 2), act(b, 1, 2), act(b, 0, 2),
		}},
		"breadth-first": {oneRank(schedule.BreadthFirst, 2), []schedule.Action{
			act(f, 0, 0), act(f, 0, 1), act(f, 0, 2), act(f, 1, 0), act(f, 1, 1), act(f, 1, 2),
			act(b, 1, 0), act(b, 1, 1), act(b, 1, 2), act(b, 0, 0), act(b, 0, 1), act(b, 0, 2),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small(), c.variant)
			defer r.close()
			r.step(unevenBatch(4, 32, 3, 1, 2))
			require.Equal(t, c.want, r.actions)
		})
	}
}

// TestScaleOfSeeds checks L10: if seeds have a power-of-two scale, the update is the same bit for bit,
// because the factor of the result undoes the scale.
func TestScaleOfSeeds(t *testing.T) {
	t.Parallel()
	batches := threeBatches()
	weights := func(exponent int) ([]numbers, []numbers) {
		r := newRig(t, small(), variant{rule: schedule.DepthFirst, placement: schedule.Looped(1, 3), group: 2},
			func(c *runner.Config[kernels.Buffer]) { c.ScaleExponent = exponent })
		defer r.close()
		all := r.train(batches)
		without := make([]numbers, len(all))
		for i, n := range all {
			without[i] = numbers{n.sum, n.weight, n.norm, map[string][]uint32{}}
			for name, x := range n.tensors {
				if name[len(name)-len("gradient"):] != "gradient" {
					without[i].tensors[name] = x
				}
			}
		}
		return all, without
	}
	all, want := weights(0)
	scaled, have := weights(10)
	requireSame(t, want, have)
	require.NotEqual(t, all[0].tensors["norm.bias gradient"], scaled[0].tensors["norm.bias gradient"], "the gradients are scaled")
}

// TestEvaluateBetweenSteps shows that an evaluation changes neither the draws of the next step
// nor its numbers.
func TestEvaluateBetweenSteps(t *testing.T) {
	t.Parallel()
	batches := threeBatches()
	want := trainReference(t, small(), batches)
	r := newRig(t, small(), variant{rule: schedule.DepthFirst, placement: schedule.Looped(1, 3), lookAhead: 1})
	defer r.close()
	var have []numbers
	for _, batch := range batches {
		first := r.evaluate(batch)
		require.Equal(t, first.Losses, r.evaluate(batch).Losses)
		require.Len(t, r.actions, 3*microbatches, "an evaluation runs forwards only")
		require.False(t, slices.ContainsFunc(r.actions, func(a schedule.Action) bool { return a.Kind() != schedule.F }))
		have = append(have, r.train([][]reference.Sequence{batch})...)
	}
	requireSame(t, want, have)
}
