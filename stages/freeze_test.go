package stages_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

// frozen runs a step of a model with NaN in every gradient and returns the backward calls of its
// scales, and the scales.
func frozen(t *testing.T, set setting, make func(t testing.TB, a, b, c stage) []stage) (backwards string, scales []*scale) {
	b := newBench(t)
	scales, wrapped := b.scales(false)
	for _, s := range scales {
		b.floats(s.grad)[0] = float32(math.NaN())
	}
	r, source := b.build(t, set, make(t, wrapped[0], wrapped[1], wrapped[2])...)
	before := b.arena.Live()
	_, err := r.Step(t.Context(), 1, source)
	require.NoError(t, err)
	require.Equal(t, before, b.arena.Live())
	for _, call := range b.calls {
		if name, isBackward := strings.CutSuffix(call, " B0"); isBackward {
			backwards += name
		}
	}
	return backwards, scales
}

func TestFreeze(t *testing.T) {
	for _, test := range []struct {
		name      string
		set       setting
		make      func(t testing.TB, a, b, c stage) []stage
		backwards string
		writes    string // the scales whose gradient is written
	}{
		{"none", setting{frozen: true}, models[0].make, "cba", "abc"},
		{"a prefix", setting{frozen: true}, func(_ testing.TB, a, b, c stage) []stage {
			return []stage{stages.Freeze(a), b, c}
		}, "cb", "bc"},
		{"in between", setting{}, func(_ testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Freeze(b), c}
		}, "cba", "ac"},
		{"a prefix within a sequential", setting{frozen: true}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{sequential(t, "s", stages.Freeze(a), stages.Freeze(b), c)}
		}, "c", "c"},
		{"a prefix within a sequential behind a stage that trains", setting{}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{sequential(t, "s", stages.Freeze(a), stages.Freeze(b), c)}
		}, "cba", "c"},
		{"in between within a sequential", setting{frozen: true}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{sequential(t, "s", a, stages.Freeze(b), c)}
		}, "cba", "ac"},
		{"a whole sequential", setting{}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Freeze(sequential(t, "s", b, c))}
		}, "cba", "a"},
		{"a sequential of frozen stages", setting{}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{a, sequential(t, "s", stages.Freeze(b), stages.Freeze(c))}
		}, "cba", "a"},
		{"under a recompute", setting{frozen: true}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{stages.Recompute(stages.Freeze(a)), b, stages.Recompute(stages.Freeze(c))}
		}, "cb", "b"},
		{"of a recompute", setting{}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Freeze(stages.Recompute(b)), c}
		}, "cba", "ac"},
		{"a prefix of recomputes within a sequential", setting{frozen: true}, func(t testing.TB, a, b, c stage) []stage {
			return []stage{sequential(t, "s", stages.Recompute(stages.Freeze(a)), stages.Recompute(b)), c}
		}, "cb", "bc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, all := frozen(t, setting{frozen: true}, models[0].make)
			backwards, scales := frozen(t, test.set, test.make)
			require.Equal(t, test.backwards, backwards)
			for i, s := range scales {
				if strings.Contains(test.writes, s.name) {
					require.Equal(t, all[i].floats(all[i].grad), s.floats(s.grad), s.name)
				} else {
					require.True(t, math.IsNaN(float64(s.floats(s.grad)[0])), s.name)
				}
			}
		})
	}
}

func TestFreezeDeclares(t *testing.T) {
	b := newBench(t)
	inner := splitScale{b.scale("a", 1)}
	f := stages.Freeze[handle](inner)
	require.True(t, f.Spec().Frozen)
	require.False(t, inner.Spec().Frozen)
	require.Equal(t, batchctx.Frozen, stages.Params(f)[0].Contributes)
	require.Equal(t, batchctx.Every, stages.Params[handle](inner)[0].Contributes, "the stage itself is as it was")
	_, splits := f.(stages.SplitBackward[handle])
	require.False(t, splits, "a frozen stage has no W")
}

// frozenSplit is a frozen stage that could split its backward if it had a W.
type frozenSplit struct{ splitScale }

func (f frozenSplit) Spec() stages.Spec {
	spec := f.splitScale.Spec()
	spec.Frozen = true
	return spec
}

func (f frozenSplit) Params() []batchctx.Use[handle] {
	params := f.splitScale.Params()
	params[0].Contributes = batchctx.Frozen
	return params
}

func TestASequenceRunsNoWOfAFrozenStage(t *testing.T) {
	_, b := train(t, setting{rule: weightsLate(1)}, true, false, func(t testing.TB, x, y, z stage) []stage {
		return []stage{sequential(t, "s", x, frozenSplit{y.(splitScale)}, z)}
	})
	require.Contains(t, b.calls, "a W2")
	require.Contains(t, b.calls, "b I2")
	require.NotContains(t, b.calls, "b W2")
}

// keepsForWeight already saves its input for W in the forward.
type keepsForWeight struct{ *scale }

func (k keepsForWeight) Forward(ctx context.Context, mb view, in, out []handle) error {
	if err := k.scale.Forward(ctx, mb, in, out); err != nil {
		return err
	}
	mb.SaveFor(batchctx.ByWeight, 2, mb.Retain(in[0]))
	return nil
}

func (k keepsForWeight) Backward(ctx context.Context, mb view, gradOut, gradIn []handle) error {
	_ = mb.Take(2)
	return k.scale.Backward(ctx, mb, gradOut, gradIn)
}

// TestASequenceSplitsAroundAFrozenStage: a stage that cannot split its backward, and takes in
// it the tensors that it saved for W, does not prevent the others from splitting once it is
// frozen.
func TestASequenceSplitsAroundAFrozenStage(t *testing.T) {
	for name, decorate := range map[string]func(stage) stage{
		"frozen":              stages.Freeze[handle],
		"frozen recompute":    func(s stage) stage { return stages.Freeze(stages.Recompute(s)) },
		"recompute of frozen": func(s stage) stage { return stages.Recompute(stages.Freeze(s)) },
		"a sequence of frozen": func(s stage) stage {
			f, _ := stages.Sequential("inner", stages.Freeze(s))
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			make := func(t testing.TB, x, y, z stage) []stage {
				return []stage{sequential(t, "s", x, decorate(keepsForWeight{y.(splitScale).scale}), z)}
			}
			want, _ := train(t, setting{}, true, false, make)
			got, b := train(t, setting{rule: weightsLate(1)}, true, false, make)
			require.Equal(t, want, got)
			require.Contains(t, b.calls, "a I2")
			require.Contains(t, b.calls, "b B2")
			require.Contains(t, b.calls, "a W2")
			require.NotContains(t, b.calls, "b W2")
		})
	}
}

// TestASequenceReadsNothingAtAFrozenW: without a W, the reads declared for W belong to the
// backward.
func TestASequenceReadsNothingAtAFrozenW(t *testing.T) {
	b := newBench(t)
	_, wrapped := b.scales(true)
	spec := sequential(t, "s", wrapped[0], stages.Freeze(wrapped[1])).Spec()
	require.Equal(t, []stages.Read{
		{Part: "part of a"}, {Part: "part of a", At: batchctx.AtBackward | batchctx.AtWeight},
		{Part: "part of b"}, {Part: "part of b", At: batchctx.AtBackward},
	}, spec.Reads)
}

// TestASequenceOfFrozenStagesDoesNotSplit: it has no W.
func TestASequenceOfFrozenStagesDoesNotSplit(t *testing.T) {
	b := newBench(t)
	_, wrapped := b.scales(true)
	s := sequential(t, "s", frozenSplit{wrapped[0].(splitScale)}, stages.Freeze(wrapped[1]))
	require.True(t, s.Spec().Frozen)
	_, splits := s.(stages.SplitBackward[handle])
	require.False(t, splits)
}
