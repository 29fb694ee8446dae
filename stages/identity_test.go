package stages_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// TestRelay puts relays between the stages of a model: only the number of stages changes, and
// no additional byte is allocated.
func TestRelay(t *testing.T) {
	relay := func(name string) stage { return stages.Identity[handle](name, wire...) }
	peak := func(b *bench) int64 {
		var stats memory.Stats
		b.arena.Stats(&stats)
		return stats.Peak
	}
	want, plain := train(t, setting{}, true, false, models[0].make)
	late, plainLate := train(t, setting{rule: weightsLate(1, 2, 3)}, true, false, models[0].make)
	require.Equal(t, want, late)
	for name, test := range map[string]struct {
		make    func(t testing.TB, a, b, c stage) []stage
		between []int // the stages between bottom and top
	}{
		"between": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{relay("r0"), a, b, relay("r1"), relay("r2"), c}
		}, []int{1, 2, 3, 4, 5, 6}},
		"within": {func(t testing.TB, a, b, c stage) []stage {
			return []stage{a, sequential(t, "s", relay("r0"), b), c}
		}, []int{1, 2, 3}},
		"recomputed": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Recompute(relay("r0")), b, c}
		}, []int{1, 2, 3, 4}},
		"frozen": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Freeze(relay("r0")), b, c}
		}, []int{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			got, b := train(t, setting{}, true, false, test.make)
			require.Equal(t, want, got)
			require.Equal(t, peak(plain), peak(b))
			got, b = train(t, setting{rule: weightsLate(test.between...)}, true, false, test.make)
			require.Equal(t, want, got, "I and W apart")
			require.Equal(t, peak(plainLate), peak(b), "I and W apart")
		})
	}
}

// TestRelayAtTheEnd has no gradient to return.
func TestRelayAtTheEnd(t *testing.T) {
	r := stages.Identity[handle]("r", wire...)
	require.ErrorContains(t, r.Backward(t.Context(), view{}, nil, make([]handle, 2)), `relay "r" is the last stage`)
	require.NoError(t, r.Backward(t.Context(), view{}, nil, nil))
}
