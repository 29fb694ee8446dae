package layout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// TestGaps holds how far above the bound the layouts of every schedule are with little
// work, on the rank of four where they are furthest. Where nothing is said they meet it.
func TestGaps(t *testing.T) {
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

// TestFewMicrobatches: programs that are too short to pass over cycles of what goes on in
// them lie within it as well, and so as low as longer ones.
func TestFewMicrobatches(t *testing.T) {
	if testkit.Raced {
		t.Skip("it has the goroutines of TestEverySchedule")
	}
	short := 0
	for _, name := range []string{"zb-h1", "zb-h2", "interleaved"} {
		gaps := make([]float64, 4)
		for _, m := range []int{128, 64, 32, 16} {
			plan := planned(t, name, 4, m, schedule.Training)
			made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{Search: placement.Options{Nodes: 15_000}})
			for rank := range made.Ranks {
				r := &made.Ranks[rank]
				if m == 128 {
					gaps[rank] = r.Gap()
					continue
				}
				requireLayout(t, made, rank, name)
				require.LessOrEqual(t, r.Gap(), gaps[rank], "%s M=%d rank %d: %s", name, m, rank, r.Method)
				cyclic := slices.ContainsFunc(r.Segments, func(s layout.Segment) bool { return s.Cycle > 0 })
				if !cyclic && strings.HasPrefix(r.Method, "what goes on") {
					short++
				}
			}
		}
	}
	require.GreaterOrEqual(t, short, 5)
}

// TestEndsGiveWay: ends that do not fit around what goes on take the places of what is
// born near to them.
func TestEndsGiveWay(t *testing.T) {
	plan := planned(t, "v-min", 4, 64, schedule.Training)
	made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{Search: placement.Options{Nodes: 60_000}})
	for rank := range made.Ranks {
		requireLayout(t, made, rank, "v-min")
		require.True(t, made.Ranks[rank].Optimal, "rank %d", rank)
	}
}

// TestManyMicrobatches: of the layouts of what goes on and on most meet the bound, and
// their ends do not take more.
func TestManyMicrobatches(t *testing.T) {
	if testkit.Raced {
		t.Skip("it has the goroutines of TestEverySchedule")
	}
	met, within := 0, 0
	for _, name := range []string{"1f1b", "zb-h1", "zb1p", "dualpipe"} {
		plan := planned(t, name, 4, 200, schedule.Training)
		made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{LookAhead: 1, Search: placement.Options{Nodes: 30_000}})
		for rank := range made.Ranks {
			requireLayout(t, made, rank, name)
			if r := &made.Ranks[rank]; r.Optimal {
				met++
				if strings.HasPrefix(r.Method, "what goes on") {
					within++
				}
			}
		}
	}
	require.GreaterOrEqual(t, met, 11)
	require.GreaterOrEqual(t, within, 3)
}
