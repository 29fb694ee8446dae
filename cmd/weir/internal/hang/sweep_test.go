package hang_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/hang"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
)

// score counts the verdicts on the hangs of one kind.
type score struct{ hung, right, certain, planned, first, listed, actions int }

// TestFaultsAreNamed plants faults in jobs of every schedule, and counts how often the ranks are named, and
// with a plan the action. With -long, the numbers are those of docs/dev/measurements.md.
func TestFaultsAreNamed(t *testing.T) {
	scores := map[string]*score{}
	kinds := []string{"nothing", "stopped", "two stopped", "killed", "swapped"}
	for i, s := range schedule.Schedules() {
		for _, posts := range []bool{false, true} {
			for _, ranks := range []int{4, 8} {
				if ranks == 8 && !*testkit.Long {
					continue
				}
				plan := planFor(t, s, ranks, posts)
				for _, pipelines := range []int{1, 2, 4} {
					if !*testkit.Long && pipelines != 1+i%2 {
						continue
					}
					for _, kind := range kinds {
						seed := rand.NewPCG(uint64(i), uint64(ranks*pipelines))
						one(t, scores, rand.New(seed), plan, s.Name, kind, pipelines, posts)
					}
				}
			}
		}
	}
	for _, posts := range []bool{false, true} {
		for _, pending := range []bool{false, true} {
			for _, kind := range kinds {
				key := fmt.Sprintf("posts %v, pending %v, %s", posts, pending, kind)
				c := *scores[key]
				t.Logf("%-40s %+v", key, c)
				if kind == "swapped" {
					require.Equal(t, c.hung, c.planned, key)
					continue
				}
				require.GreaterOrEqual(t, 10*c.right, 9*c.hung, key)
				require.GreaterOrEqual(t, 50*c.planned, 49*c.hung, key)
				require.GreaterOrEqual(t, 50*c.listed, 49*c.hung, key)
			}
		}
	}
}

// one simulates a job with a fault, and judges the reports on its dumps.
func one(t *testing.T, scores map[string]*score, rng *rand.Rand, plan *schedule.Plan, name, kind string, pipelines int, posts bool) {
	m := makeJob(plan, pipelines, 3, posts)
	planted := true
	switch kind {
	case "nothing":
	case "two stopped":
		planted = m.plant(rng, "stopped")
		m.plant(rng, "stopped")
	default:
		planted = m.plant(rng, kind)
	}
	batches := []string{"", "2.4", "2.6"}[rng.IntN(3)]
	for _, r := range m.ranks {
		r.Batches = batches
	}
	done := m.run()
	var want []int
	for _, f := range m.faults {
		if f.kind == "swapped" || m.ranks[f.rank].dead {
			want = append(want, f.rank)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	for _, pending := range []bool{false, true} {
		key := fmt.Sprintf("posts %v, pending %v, %s", posts, pending, kind)
		if scores[key] == nil {
			scores[key] = &score{}
		}
		dumps := m.dumps(t, pending)
		blind, seeing := hang.Dumps(dumps), hang.Dumps(dumps, plan)
		if done {
			require.NotEqual(t, "stopped", kind)
			require.Empty(t, blind.Blamed, "%s %s: nothing is wrong", name, key)
			require.Empty(t, seeing.Blamed, "%s %s: nothing is wrong", name, key)
			continue
		}
		require.True(t, planted && kind != "nothing", "%s %s hangs", name, key)
		c := scores[key]
		c.hung++
		for _, r := range append(blind.Reasons, seeing.Reasons...) {
			for _, rank := range r.Ranks {
				require.True(t, !r.Certain || slices.Contains(want, rank), "%s %s: rank %d is not to blame, and that is certain: %v", name, key, rank, r)
			}
		}
		if slices.Equal(want, blind.Blamed) {
			c.right++
			if blind.Certain {
				c.certain++
			}
		} else if kind != "swapped" {
			t.Log("without a plan", name, key, pipelines, want, blind.Blamed, blind.Reasons)
		}
		if slices.Equal(want, seeing.Blamed) {
			c.planned++
		} else {
			t.Log("with the plan", name, key, pipelines, want, seeing.Blamed, seeing.Reasons, seeing.Fit.Why)
		}
		if !seeing.Fit.Fits {
			continue
		}
		exact, listed := true, true
		for _, f := range m.faults {
			if r := m.ranks[f.rank]; f.kind != "swapped" && r.dead && r.at == f.item {
				p := seeing.Fit.Positions[f.rank]
				stood := m.ranks[f.rank].items[f.item].action
				exact = exact && p != nil && p.Before[0] == stood
				if p != nil {
					c.actions += len(p.Before)
				}
				listed = listed && p != nil && slices.Contains(p.Before, stood)
			}
		}
		if exact {
			c.first++
		}
		if listed {
			c.listed++
		}
	}
}
