package slots_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/slots"
)

// TestTable compares the table of docs/dev/measurements.md, which has each schedule with its usual number
// of stages, with the slots of all schedules. -update writes it.
func TestTable(t *testing.T) {
	var rows strings.Builder
	for _, s := range schedule.Schedules() {
		for _, perRank := range []int{1, 2, 4} {
			cells, fewer := "", ""
			for _, ranks := range []int{2, 4, 8} {
				plan := made(t, s, ranks, perRank, 4*ranks)
				if plan == nil {
					continue
				}
				table, err := slots.Make(slots.Config{}, plan)
				require.NoError(t, err)
				sums := map[slots.Tensor]*[3]int{slots.Received: {}, slots.Saved: {}}
				for _, n := range table.Counts {
					if sum := sums[n.Tensor]; sum != nil {
						sum[0], sum[1], sum[2] = sum[0]+n.ByStage, sum[1]+n.ByDirection, sum[2]+n.ByRank
					}
				}
				received, saved := sums[slots.Received], sums[slots.Saved]
				require.GreaterOrEqual(t, received[0], received[1])
				require.GreaterOrEqual(t, received[1], received[2])
				require.Equal(t, saved[1], saved[2], "saved state has one direction")
				cells += fmt.Sprintf(" %d, %d, %d | %d, %d |", received[0], received[1], received[2], saved[0], saved[2])
				fewer = fmt.Sprintf(" %.0f %%, %.0f %% |", 100-100*float64(received[1])/float64(received[0]), 100-100*float64(received[2])/float64(received[0]))
			}
			if cells != "" && perRank == s.PerRank {
				fmt.Fprintf(&rows, "| `%s` | %d |%s%s\n", s.Name, perRank, cells, fewer)
			}
		}
	}
	page, err := os.ReadFile("../../docs/dev/measurements.md")
	require.NoError(t, err)
	table := regexp.MustCompile("(?:\\| `[a-z0-9-]+` \\| [124] \\| [0-9].*\n)+")
	require.Len(t, table.FindAll(page, -1), 1)
	if *testkit.Update {
		require.NoError(t, os.WriteFile("../../docs/dev/measurements.md", table.ReplaceAllLiteral(page, []byte(rows.String())), 0o644))
		return
	}
	require.Equal(t, rows.String(), string(table.Find(page)))
}
