package stages_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

// frozen runs a step of a model with NaN in every gradient and returns which
// backward calls its scales had, what their gradients are, and the scales.
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
	require.False(t, splits, "there is no W of a frozen stage")
}

// frozenSplit is a frozen stage that could split its backward if it had a W.
type frozenSplit struct{ splitScale }

func (f frozenSplit) Spec() stages.Spec {
	spec := f.splitScale.Spec()
	spec.Frozen = true
	return spec
}

func (f frozenSplit) Params() []batchctx.Param[handle] {
	params := f.splitScale.Params()
	params[0].Contributes = batchctx.Frozen
	return params
}

func TestASequenceRunsNoWOfAFrozenStage(t *testing.T) {
	_, b := train(t, setting{rule: weightsLate(1, 1)}, true, false, func(t testing.TB, x, y, z stage) []stage {
		return []stage{sequential(t, "s", x, frozenSplit{y.(splitScale)}, z)}
	})
	require.Contains(t, b.calls, "a W2")
	require.Contains(t, b.calls, "b I2")
	require.NotContains(t, b.calls, "b W2")
}
