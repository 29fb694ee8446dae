package stages_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// TestIdentity puts identities between the stages of a model: only the number of stages changes, and
// no additional byte is allocated.
func TestIdentity(t *testing.T) {
	identity := func(name string) stage { return stages.Identity[handle](name, wire...) }
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
			return []stage{identity("r0"), a, b, identity("r1"), identity("r2"), c}
		}, []int{1, 2, 3, 4, 5, 6}},
		"within": {func(t testing.TB, a, b, c stage) []stage {
			return []stage{a, sequential(t, "s", identity("r0"), b), c}
		}, []int{1, 2, 3}},
		"recomputed": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Recompute(identity("r0")), b, c}
		}, []int{1, 2, 3, 4}},
		"frozen": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Freeze(identity("r0")), b, c}
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

// TestIdentityAtTheEnd has no gradient to return.
func TestIdentityAtTheEnd(t *testing.T) {
	r := stages.Identity[handle]("r", wire...)
	require.ErrorContains(t, r.Backward(t.Context(), view{}, nil, make([]handle, 2)), `identity "r" is the last stage`)
	require.NoError(t, r.Backward(t.Context(), view{}, nil, nil))
}
