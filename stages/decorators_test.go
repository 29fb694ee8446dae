package stages_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// models are ways to combine the stages a, b and c. All give the same numbers as the separate
// stages.
var models = []struct {
	name   string
	make   func(t testing.TB, a, b, c stage) []stage
	splits []int // the stages of the model that can split their backward
}{
	{"apart", func(_ testing.TB, a, b, c stage) []stage { return []stage{a, b, c} }, []int{1, 2, 3}},
	{"sequential of one", func(t testing.TB, a, b, c stage) []stage { return []stage{sequential(t, "s", a), b, c} }, []int{1, 2, 3}},
	{"sequential", func(t testing.TB, a, b, c stage) []stage { return []stage{sequential(t, "s", a, b, c)} }, []int{1}},
	{"nested left", func(t testing.TB, a, b, c stage) []stage {
		return []stage{sequential(t, "s", sequential(t, "inner", a, b), c)}
	}, []int{1}},
	{"nested right", func(t testing.TB, a, b, c stage) []stage {
		return []stage{sequential(t, "s", a, sequential(t, "inner", b, c))}
	}, []int{1}},
	{"recompute", func(_ testing.TB, a, b, c stage) []stage {
		return []stage{stages.Recompute(a), b, stages.Recompute(c)}
	}, []int{1, 2, 3}},
	{"recompute twice", func(_ testing.TB, a, b, c stage) []stage {
		return []stage{a, stages.Recompute(stages.Recompute(b)), c}
	}, []int{1, 2, 3}},
	{"recompute of a sequential", func(t testing.TB, a, b, c stage) []stage {
		return []stage{stages.Recompute(sequential(t, "s", a, b)), c}
	}, []int{1, 2}},
	{"recompute within a sequential", func(t testing.TB, a, b, c stage) []stage {
		return []stage{sequential(t, "s", a, stages.Recompute(b), stages.Recompute(c))}
	}, []int{1}},
	{"recompute around and within", func(t testing.TB, a, b, c stage) []stage {
		return []stage{stages.Recompute(sequential(t, "s", stages.Recompute(a), b, stages.Recompute(stages.Recompute(c))))}
	}, []int{1}},
	{"recompute of a nested sequential", func(t testing.TB, a, b, c stage) []stage {
		return []stage{sequential(t, "s", a, stages.Recompute(sequential(t, "inner", b, stages.Recompute(c))))}
	}, []int{1}},
}

func TestDecoratorsDoNotChangeNumbers(t *testing.T) { // L9, L13
	for _, tied := range []bool{false, true} {
		want, _ := train(t, setting{}, false, tied, models[0].make)
		for _, v := range want.losses[:4] {
			require.EqualValues(t, microbatches, v.Count)
		}
		for _, m := range models {
			t.Run(fmt.Sprintf("%s, tied %v", m.name, tied), func(t *testing.T) {
				rules := map[string]setting{
					"depth-first":   {rule: schedule.DepthFirst},
					"breadth-first": {rule: schedule.BreadthFirst},
				}
				for _, split := range []bool{false, true} {
					for name, set := range rules {
						got, _ := train(t, set, split, tied, m.make)
						require.Equal(t, want, got, name)
					}
				}
				got, b := train(t, setting{rule: weightsLate(m.splits...)}, true, tied, m.make)
				require.Equal(t, want, got, "I and W apart")
				require.Contains(t, b.calls, "c W2")
				require.NotContains(t, b.calls, "c B2")
			})
		}
	}
}

func TestDecoratorsDoNotChangeEvaluation(t *testing.T) {
	evaluate := func(t *testing.T, make func(t testing.TB, a, b, c stage) []stage) []loss.Value {
		b := newBench(t)
		_, wrapped := b.scales(false)
		r, source := b.build(t, setting{}, make(t, wrapped[0], wrapped[1], wrapped[2])...)
		before := b.arena.Live()
		result, err := r.Evaluate(t.Context(), microbatches, source)
		require.NoError(t, err)
		require.Equal(t, before, b.arena.Live())
		require.Len(t, b.calls, 3*microbatches)
		return result.Losses
	}
	want := evaluate(t, models[0].make)
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) { require.Equal(t, want, evaluate(t, m.make)) })
	}
}

// TestEveryWayOutReleasesEverything makes every call of every stage fail in turn, by an error
// or a panic, before it does anything or after it has done everything. The space cannot
// reclaim, so each handle must be released by its owner.
func TestEveryWayOutReleasesEverything(t *testing.T) { // L8
	for _, m := range models {
		for _, apart := range []bool{false, true} {
			set := setting{}
			if apart {
				set.rule = weightsLate(m.splits...)
			}
			t.Run(fmt.Sprintf("%s, I and W apart %v", m.name, apart), func(t *testing.T) {
				want, all := train(t, set, apart, false, m.make)
				for n := 1; n <= len(all.calls); n++ {
					for way := range 4 {
						b := newBench(t)
						scales, wrapped := b.scales(apart)
						r, source := b.build(t, set, m.make(t, wrapped[0], wrapped[1], wrapped[2])...)
						before := b.arena.Live()
						b.fails, b.after, b.dies = n, way&1 == 1, way&2 == 2

						step := func() error { _, err := r.Step(t.Context(), microbatches, source); return err }
						if b.dies {
							require.PanicsWithValue(t, errPlanted, func() { _ = step() })
						} else {
							require.ErrorIs(t, step(), errPlanted)
						}
						where := fmt.Sprintf("call %d (%s), after %v, panic %v", n, b.calls[n-1], b.after, b.dies)
						require.Equal(t, before, b.arena.Live(), where)

						b.fails = 0
						result, err := r.Step(t.Context(), microbatches, source)
						require.NoError(t, err, where)
						require.Equal(t, want, b.outcome(result, scales), where)
					}
				}
			})
		}
	}
}
