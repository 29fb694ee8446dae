package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every step in FP8 has a line for each role in the memory log, which sum to the figures of the
// summary; a step in float32 has none.
func TestFP8InTheLog(t *testing.T) {
	for _, recipe := range []string{"delayed", float32s} {
		folder := filepath.Join(t.TempDir(), "run")
		s := summaryOf(t, "-data", sentence(t), "-fp8", recipe, "-width", "16", "-layers", "1", "-run", folder)
		underflowed, lines := map[string]uint64{}, map[int64]int{}
		for _, record := range records(t, folder) {
			if f := record.FP8; f != nil {
				underflowed[f.Role] += f.Underflowed
				lines[f.Step]++
				require.Positive(t, f.LeastScale)
				require.GreaterOrEqual(t, f.GreatestScale, f.LeastScale)
			}
		}
		if recipe == float32s {
			require.Empty(t, lines)
			continue
		}
		require.Len(t, lines, s.Steps)
		for step, n := range lines {
			require.Equal(t, 4, n, "step %d", step)
		}
		for role, met := range s.FP8Roles {
			require.Equal(t, met.Underflowed, underflowed[role], role)
		}
	}
}
