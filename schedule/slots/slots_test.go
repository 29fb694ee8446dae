package slots_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/slots"
)

// made returns the plan of a schedule for PyTorch, with its transfers, or nil if the schedule does not support these
// numbers of stages or microbatches.
func made(t require.TestingT, s schedule.Schedule, ranks, perRank, microbatches int) *schedule.Plan {
	place, err := s.Place(ranks, ranks*perRank)
	if err != nil {
		return nil
	}
	plan, err := s.Rule(schedule.Params{Placement: place, Microbatches: microbatches})
	if err != nil {
		return nil
	}
	plan.Runtime = schedule.PyTorch
	plan, err = lower.Transfers(plan, 0)
	require.NoError(t, err)
	return plan
}

// TestMake verifies the slots of all schedules action by action, including those of the repeats that Make skips, and
// compares the number of slots with the largest number of live tensors.
func TestMake(t *testing.T) {
	for _, s := range schedule.Schedules() {
		for _, ranks := range []int{2, 4} {
			for _, microbatches := range []int{8, 16, 1000} {
				plan := made(t, s, ranks, s.PerRank, microbatches)
				for i, pooling := range []slots.Pooling{slots.ByStage, slots.ByDirection, slots.ByRank} {
					hold := []slots.Hold{slots.Taken, slots.Last}[(i+microbatches)%2]
					table := tableOf(t, slots.Config{Pooling: pooling, Hold: hold}, plan)
					require.Empty(t, slots.Verify(table, 0, plan), "%s on %d ranks, %d microbatches, %v, %v", s.Name, ranks, microbatches, pooling, hold)
				}
			}
		}
	}
}

// TestAnyLength compares the tables of a plan for 400 and for a million microbatches: the pools are equal, and
// the second table is less than twice as long.
func TestAnyLength(t *testing.T) {
	for _, s := range schedule.Schedules() {
		if s.Name == "gpipe" || s.Name == "breadth-first" {
			continue // the slots grow with the microbatches
		}
		var tables [2]*slots.Table
		for i, microbatches := range []int{400, 1 << 20} {
			tables[i] = tableOf(t, slots.Config{}, made(t, s, 4, s.PerRank, microbatches))
		}
		require.Equal(t, tables[0].Pools, tables[1].Pools, s.Name)
		require.Less(t, len(text(t, tables[1])), 2*len(text(t, tables[0])), s.Name)
	}
}

func text(t *testing.T, table *slots.Table) string {
	var b bytes.Buffer
	require.NoError(t, slots.Write(&b, table))
	again, err := slots.Read(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	require.Equal(t, table, again)
	return b.String()
}

// TestRandom verifies the slots of random plans, and finds every overlap that is planted in them.
func TestRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 46))
	planted := 0
	for range 300 {
		plan, _ := plantest.Grow(rng, plantest.DrawFeatures(rng))
		if plan.Placement.Ranks > 1 && !plan.HasTransfers() {
			var err error
			plan, err = lower.Transfers(plan, schedule.Unlimited)
			require.NoError(t, err)
		}
		table := tableOf(t, slots.Config{Pooling: []slots.Pooling{slots.ByStage, slots.ByDirection, slots.ByRank}[rng.IntN(3)]}, plan)
		require.Empty(t, slots.Verify(table, 0, plan), "seed %d", plantest.Seed())
		if plant(rng, table) {
			planted++
			require.NotEmpty(t, slots.Verify(table, 0, plan), "seed %d", plantest.Seed())
		}
	}
	require.Greater(t, planted, 100)
}

// plant puts two tensors that are alive at the same time into one slot: in all runs of a pool, it replaces one slot by
// another, and at some moment both are in use. It returns false if no pool has two slots.
func plant(rng *rand.Rand, table *slots.Table) bool {
	full := slices.DeleteFunc(slices.Clone(table.Variants[0].Assignments), func(a *slots.Assignment) bool { return a.Slots < 2 })
	if len(full) == 0 {
		return false
	}
	a := full[rng.IntN(len(full))]
	from := rng.IntN(a.Slots)
	to := (from + 1 + rng.IntN(a.Slots-1)) % a.Slots
	for i := range a.Runs {
		for k, slot := range a.Runs[i].Slots {
			if slot == from {
				a.Runs[i].Slots[k] = to
			}
		}
	}
	return true
}

// TestFaults requires a fault for each way in which a table can be wrong.
func TestFaults(t *testing.T) {
	s, err := schedule.Find("zb-v")
	require.NoError(t, err)
	plan := made(t, s, 2, 2, 8)
	for name, change := range map[string]func(*slots.Table){
		"a slot that is alive": func(t *slots.Table) {
			t.Variants[0].Assignments[1].Runs[0].Slots[1] = t.Variants[0].Assignments[1].Runs[0].Slots[0]
		},
		"a slot too many":              func(t *slots.Table) { t.Variants[0].Assignments[0].Slots++; t.Pools[0].Slots++ },
		"a pool that is too small":     func(t *slots.Table) { t.Pools[0].Slots-- },
		"a slot that does not exist":   func(t *slots.Table) { t.Variants[0].Assignments[0].Runs[0].Slots[0] = 99 },
		"no slot":                      func(t *slots.Table) { t.Variants[0].Assignments[0].Runs[0].Count-- },
		"a second slot":                func(t *slots.Table) { a := t.Variants[0].Assignments[0]; a.Runs = append(a.Runs, a.Runs[0]) },
		"a tensor that does not exist": func(t *slots.Table) { t.Variants[0].Assignments[0].Runs[0].Stage = 1 },
		"another moment":               func(t *slots.Table) { t.Variants[0].Assignments[0].At = 1 << 40 },
		"a run beyond the plan":        func(t *slots.Table) { t.Variants[0].Assignments[0].Runs[0].Stride = 1 << 62 },
		"no run":                       func(t *slots.Table) { t.Variants[0].Assignments[0].Runs[0].Slots = nil },
		"a pool of another variant":    func(t *slots.Table) { t.Variants[0].Assignments[0].Pool = -1 },
		"no assignment":                func(t *slots.Table) { t.Variants[0].Assignments[0] = nil },
		"another length":               func(t *slots.Table) { t.Variants[0].Microbatches++ },
		"another hold":                 func(t *slots.Table) { t.Hold = "ever" },
		"no variant":                   func(t *slots.Table) { t.Variants = nil },
	} {
		table := tableOf(t, slots.Config{}, plan)
		require.Empty(t, slots.Verify(table, 0, plan))
		change(table)
		require.NotEmpty(t, slots.Verify(table, 0, plan), name)
	}
}

// TestVariants requires the maximum of two plans in each pool, and slots for both.
func TestVariants(t *testing.T) {
	s, err := schedule.Find("zb-v")
	require.NoError(t, err)
	training := made(t, s, 4, 2, 16)
	evaluation, err := lower.RuleFromPlan(training)(schedule.Params{Microbatches: 16, Mode: schedule.ForwardOnly})
	require.NoError(t, err)
	evaluation, err = lower.Transfers(evaluation, 4)
	require.NoError(t, err)
	both := tableOf(t, slots.Config{}, training, evaluation)
	require.Empty(t, slots.Verify(both, 0, training))
	require.Empty(t, slots.Verify(both, 1, evaluation))
	alone := tableOf(t, slots.Config{}, training)
	for _, change := range slots.Compare(alone, both) {
		require.Greater(t, change.Now, change.Was)
		require.NotEqual(t, slots.Saved, change.Tensor, "an evaluation saves nothing")
	}
	require.Empty(t, slots.Compare(both, both))
	two, err := s.Place(2, 4)
	require.NoError(t, err)
	small, err := s.Rule(schedule.Params{Placement: two, Microbatches: 8})
	require.NoError(t, err)
	_, err = slots.Make(slots.Config{}, training, small)
	require.ErrorIs(t, err, slots.ErrPlan)
	_, err = slots.Make(slots.Config{}, small)
	require.ErrorIs(t, err, slots.ErrPlan, "without transfers")
	_, err = slots.Make(slots.Config{})
	require.ErrorIs(t, err, slots.ErrPlan, "without plans")
	_, err = slots.Make(slots.Config{Pooling: "layer"}, training)
	require.ErrorContains(t, err, `the pooling is "layer"`)
	_, err = slots.Make(slots.Config{Hold: "first"}, training)
	require.ErrorContains(t, err, `the hold is "first"`)
}

// TestLeastSends requires one unreleased send with a free link, and more with a slow link.
func TestLeastSends(t *testing.T) {
	s, err := schedule.Find("1f1b")
	require.NoError(t, err)
	plan, costs := made(t, s, 4, 1, 16), &simulate.Costs{}
	for range 4 {
		costs.Stages = append(costs.Stages, simulate.StageCosts{F: 10, I: 10, W: 10})
	}
	fast, err := slots.LeastSends(plan, costs)
	require.NoError(t, err)
	costs.Latency = 45
	slow, err := slots.LeastSends(plan, costs)
	require.NoError(t, err)
	require.Equal(t, 1, fast)
	require.Greater(t, slow, fast)
}

// TestRead requires errors for files that do not hold slots.
func TestRead(t *testing.T) {
	for _, file := range []string{"", "{}", `{"schema":2}`, `{"schema":1,"slot":[]}`, "[1]"} {
		_, err := slots.Read(bytes.NewReader([]byte(file)))
		require.ErrorIs(t, err, slots.ErrTable, file)
	}
	require.True(t, json.Valid([]byte(text(t, &slots.Table{Schema: 1, Pools: []slots.Pool{}, Counts: []slots.Count{}, Variants: []slots.Variant{}}))))
}

// TestFixtures compares slots with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "slots-%d.json", Mark: "\"schema\": %d", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			table := tableOf(t, slots.Config{}, made(t, schedule.Schedules()[0], 2, 1, 4))
			return []byte(text(t, table))
		},
		Read: func(text []byte) error {
			_, err := slots.Read(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}

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
				table := tableOf(t, slots.Config{}, plan)
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

// tableOf returns the table of plans that have one.
func tableOf(t require.TestingT, cfg slots.Config, plans ...*schedule.Plan) *slots.Table {
	table, err := slots.Make(cfg, plans...)
	require.NoError(t, err)
	return table
}
