package effects_test

import (
	"iter"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
)

// kinds returns the kinds of a set.
func kinds(s effects.Set) (list []effects.BufferKind) {
	for ; s != 0; s &= s - 1 {
		list = append(list, s.First())
	}
	return list
}

// TestOf checks the effects of each action in a model of three stages, of which the first two are
// on one rank.
func TestOf(t *testing.T) {
	plan := &schedule.Plan{Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 0, 1}}, Microbatches: 4, Parts: make([][schedule.NumKinds]uint64, 3)}
	plan.Parts[0][schedule.F], plan.Parts[0][schedule.I] = 0b10, 0b01
	type list = []effects.BufferKind
	const all = schedule.DropParts | schedule.DropInput | schedule.DropOutput | schedule.DropGrad | schedule.DropSaved | schedule.DropSent |
		schedule.Retire | schedule.DropForwardWeights | schedule.DropBackwardWeights
	for _, c := range []struct {
		kind      schedule.Kind
		stage     int
		drop      schedule.Drop
		to        effects.BufferKind
		of        int
		ends, due list
		last      bool
		parts     uint64
	}{
		{kind: schedule.F, drop: schedule.DropParts, to: effects.Input, of: 1, ends: list{effects.Part}, parts: 0b10},
		{kind: schedule.F, stage: 1, to: effects.SentOutput, of: 1, due: list{effects.Input}},
		{kind: schedule.F, stage: 2, drop: schedule.DropInput | schedule.DropForwardWeights, to: effects.Output, of: 2,
			ends: list{effects.Input, effects.ForwardWeights, effects.Output}, due: list{effects.Input, effects.ForwardWeights, effects.Output}},
		{kind: schedule.B, due: list{effects.Gradient, effects.Saved}, last: true},
		{kind: schedule.I, drop: schedule.DropParts | schedule.DropGrad | schedule.DropSaved, parts: 0b01,
			ends: list{effects.Part, effects.Gradient, effects.Saved}, due: list{effects.Gradient}},
		{kind: schedule.B, stage: 1, to: effects.Gradient, due: list{effects.Gradient, effects.Saved}, last: true},
		{kind: schedule.I, stage: 2, to: effects.SentGradient, of: 2},
		{kind: schedule.W, stage: 2, of: 2, due: list{effects.Saved}, last: true},
		{kind: schedule.SendF, stage: 1, of: 1},
		{kind: schedule.WaitF, stage: 1, drop: schedule.DropSent, of: 1, ends: list{effects.SentOutput}, due: list{effects.SentOutput}},
		{kind: schedule.WaitB, stage: 2, drop: all, of: 2, due: list{effects.SentGradient, effects.ForwardWeights, effects.BackwardWeights},
			ends: list{effects.Part, effects.Input, effects.Gradient, effects.Saved, effects.SentGradient, effects.ForwardWeights, effects.BackwardWeights}},
		{kind: schedule.Offload, stage: 1, to: effects.Far, of: 1},
		{kind: schedule.WaitOffload, stage: 1, drop: schedule.DropSaved, of: 1, ends: list{effects.Saved}},
		{kind: schedule.Reload, stage: 1, to: effects.Saved, of: 1},
		{kind: schedule.B, drop: schedule.DropSaved | schedule.DropFar, due: list{effects.Gradient, effects.Saved}, last: true, ends: list{effects.Saved, effects.Far}},
		{kind: schedule.RecvF, stage: 2, to: effects.Input, of: 2},
		{kind: schedule.RecvB, stage: 1, to: effects.Gradient, of: 1},
		{kind: schedule.Quantize, stage: 1, to: effects.ForwardWeights, of: 1},
		{kind: schedule.Unshard, stage: 1, to: effects.Gathered, of: 1},
		{kind: schedule.Reshard, stage: 1, of: 1, ends: list{effects.Gathered}, due: list{effects.Gathered}},
		{kind: schedule.ReduceGrad, stage: 1, of: 1},
		{kind: schedule.ZeroGrad, stage: 1, to: effects.Accumulator, of: 1},
		{kind: schedule.WaitReduce, stage: 1, of: 1, ends: list{effects.Accumulator}, due: list{effects.Accumulator}},
	} {
		a := schedule.NewAction(c.kind, c.stage, 0).WithDrop(c.drop)
		e := effects.Of(plan, a)
		require.Equal(t, c.kind == schedule.F, e.Pulls, "%v", a)
		require.Equal(t, c.to, e.To, "%v", a)
		require.EqualValues(t, c.of, e.Stage, "%v", a)
		require.Equal(t, c.ends, kinds(e.Ends), "%v", a)
		require.Equal(t, c.due, kinds(e.Due), "%v", a)
		require.Equal(t, c.last, e.Last, "%v", a)
		require.Equal(t, c.parts, e.Parts, "%v", a)
	}
	plan.Frozen = []bool{true, false, false}
	require.Equal(t, effects.None, effects.Of(plan, schedule.NewAction(schedule.B, 1, 0)).To, "no stage before it trains")
	require.Equal(t, effects.SentGradient, effects.Of(plan, schedule.NewAction(schedule.B, 2, 0)).To)
	plan.Mode = schedule.ForwardOnly
	require.True(t, effects.Of(plan, schedule.NewAction(schedule.F, 1, 0)).Last)
}

func TestUpto(t *testing.T) {
	plan := &schedule.Plan{Microbatches: 4}
	require.Equal(t, 1, effects.Upto(plan, 1, 0))
	require.Equal(t, 3, effects.Upto(plan, 1, 2))
	require.Equal(t, 3, effects.Upto(plan, 2, math.MaxInt))
}

func TestTies(t *testing.T) {
	names := [][]string{{"embedding", "bias"}, nil, {"bias", "embedding"}, {"embedding"}}
	owners, ties := effects.Ties(len(names), func(stage int) iter.Seq2[int, string] { return slices.All(names[stage]) })
	require.Equal(t, []effects.Use{{Stage: 0, Param: 0}, {Stage: 0, Param: 1}}, owners)
	require.Equal(t, []effects.Tie{
		{Owner: effects.Use{Stage: 0, Param: 1}, Use: effects.Use{Stage: 2, Param: 0}}, {Owner: effects.Use{Stage: 0, Param: 0}, Use: effects.Use{Stage: 2, Param: 1}}, {Owner: effects.Use{Stage: 0, Param: 0}, Use: effects.Use{Stage: 3, Param: 0}},
	}, ties)
}
