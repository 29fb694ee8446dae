package passes_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// TestCursor advances through programs with nested loops, sometimes by several repeats in one step, and compares the
// actions with the list.
func TestCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		p, _ := plantest.DrawPipelined(t)
		p = plantest.Nested(p, rng)
		list := slices.Collect(p.All(0))
		at := passes.NewCursor(p.Programs[0], 0)
		for int(at.Position) < len(list) {
			a, ok := at.Action()
			require.True(t, ok)
			require.Equal(t, list[at.Position], a)
			if s := &at.Program[at.Segment]; rng.IntN(8) == 0 {
				began := at
				at.Skip(rng.IntN(s.Repeat - at.Repeat))
				require.True(t, at.SamePlace(&began))
				require.Zero(t, (at.Position-began.Position)%s.Len())
				continue
			}
			at.Advance()
		}
		_, ok := at.Action()
		require.False(t, ok)
	})
}
