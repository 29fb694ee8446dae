package layout_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

var long = flag.Bool("long", false, "lay out every schedule with many microbatches too")

// TestGaps holds how far above the bound the layouts of every schedule are with little
// work, on the rank of four where they are furthest. Where nothing is said they meet it.
func TestGaps(t *testing.T) {
	most := map[string]float64{
		"gpipe": 0.0125, "interleaved": 0.02, "breadth-first": 0.006, "zb-h1": 0.007, "zb-h2": 0.004,
		"zb1p": 0.013, "v-min": 0.002, "dualpipev": 0.001,
	}
	for _, s := range schedule.Schedules() {
		few := s.Name == "1f1b" || s.Name == "zb-v"
		if raced && !few {
			continue
		}
		for _, m := range []int{8, 128} {
			if m > 8 && !few && !*long {
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

// TestManyMicrobatches: of the layouts of what goes on and on most meet the bound, and
// their ends do not take more.
func TestManyMicrobatches(t *testing.T) {
	met := 0
	for _, name := range []string{"1f1b", "zb-h1", "zb1p", "dualpipe"} {
		plan := planned(t, name, 4, 200, schedule.Training)
		made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{LookAhead: 1, Search: placement.Options{Nodes: 30_000}})
		for rank := range made.Ranks {
			requireLayout(t, made, rank, name)
			if made.Ranks[rank].Optimal {
				met++
			}
		}
	}
	require.GreaterOrEqual(t, met, 8)
}
