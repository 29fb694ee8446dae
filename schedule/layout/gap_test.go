package layout_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// TestGaps bounds the excess of every schedule's layout after a short search, on the worst of four ranks. Schedules
// that are not listed meet the bound.
func TestGaps(t *testing.T) {
	testkit.Slow(t)
	most := map[string]float64{
		"gpipe": 0.0015, "interleaved": 0.017, "breadth-first": 0.006, "zb-h1": 0.006, "zb-h2": 0.004,
		"zb1p": 0.012, "v-min": 0.002, "dualpipe": 0.001, "dualpipev": 0.001,
	}
	for _, s := range schedule.Schedules() {
		few := s.Name == "1f1b" || s.Name == "zb-v"
		if testkit.Raced && !few {
			continue
		}
		for _, m := range []int{8, 64, 128} {
			if m > 64 && !few && !*testkit.Long {
				continue
			}
			name := fmt.Sprintf("%s M=%d", s.Name, m)
			plan := planned(t, s.Name, 4, m, schedule.Training)
			made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{Search: placement.Options{Nodes: 15_000}})
			for rank := range made.Ranks {
				requireLayout(t, made, rank, name)
				r := &made.Ranks[rank]
				require.LessOrEqual(t, r.Gap(), most[s.Name], "%s rank %d: %s", name, rank, r.Method)
				require.Equal(t, r.Height == r.Bound, r.Optimal, "%s rank %d: %s", name, rank, r.Proof)
			}
		}
	}
}
