package runner_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
)

// fixedOf returns a runner of the rows under a fixed plan, or the error of its configuration.
func fixedOf(t *testing.T, plan *schedule.Plan, rows []*times, capacity int, change ...func(cfg *runner.Config[number])) *runner.Runner[number] {
	rig := ranksOf{placement: plan.Placement, capacity: capacity, split: true, change: func(cfg *runner.Config[number]) {
		cfg.Plan = runner.Plan{Fixed: plan}
		for _, change := range change {
			change(cfg)
		}
	}}
	return rig.group(t, rows)
}

func indexed() runner.Source[number] {
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
		e.Put("x", num(float64(1+e.Index())))
		return nil
	})
}

// TestFixedPlans trains under the plan of every schedule: as a rule returns it, from a program
// with other stages, and in PyTorch's form. The numbers are bit-equal to the rule's.
func TestFixedPlans(t *testing.T) {
	const ranks, m = 4, 12
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			place, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			bare := plantest.Made(t, s.Rule, schedule.Params{Placement: place, Microbatches: m})
			ready, err := lower.Prepare(bare, lower.Passes{StageInfo: otherFacts(place), Parts: 2, Capacity: 2})
			require.NoError(t, err)

			rows := rowsOf(place)
			rig := ranksOf{placement: place, rule: s.Rule, capacity: 2, split: true}
			run := rig.group(t, rows)
			result := runStep(t, run, m, indexed())
			want := numbersOf(t, result, rows)
			evaluated := evaluate(t, run, 5, indexed())

			for name, plan := range map[string]*schedule.Plan{"of the rule": bare, "of other stages": ready, "without waits": withoutWaits(ready)} {
				rows := rowsOf(place)
				run := fixedOf(t, plan, rows, 2)
				for range 2 {
					result := runStep(t, run, m, indexed())
					require.Equal(t, want, numbersOf(t, result, rows), name)
				}
				again := evaluate(t, run, 5, indexed())
				require.Equal(t, evaluated.Losses, again.Losses, name)
			}
		})
	}
}

// otherFacts returns facts of stages that differ from a chain's: they read and save other tensors.
func otherFacts(p schedule.Placement) []schedule.StageInfo {
	facts := make([]schedule.StageInfo, p.Stages())
	for stage := range facts {
		facts[stage].Split = true
		facts[stage].Reads[schedule.F], facts[stage].Reads[schedule.B], facts[stage].Reads[schedule.I] = 3, 1, 1
	}
	return facts
}

// withoutWaits returns a plan in PyTorch's form: sends have no waits.
func withoutWaits(plan *schedule.Plan) *schedule.Plan {
	left := *plan
	left.Programs = make([][]schedule.Segment, len(plan.Programs))
	for rank := range plan.Programs {
		var list schedule.Builder
		for a := range plan.All(rank) {
			if a.Kind() != schedule.WaitF && a.Kind() != schedule.WaitB {
				list.Append(a)
			}
		}
		left.Programs[rank] = list.Program()
	}
	return &left
}

// TestFixedPlansOfOtherBatches steps with numbers of microbatches that the plan's loops fit, and
// with one that they do not fit.
func TestFixedPlansOfOtherBatches(t *testing.T) {
	place := schedule.Looped(2, 2)
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: place, Microbatches: 64})
	rows := rowsOf(place)
	run := fixedOf(t, plan, rows, 1)
	for _, m := range []int{64, 65, 200, 3} {
		result := runStep(t, run, m, indexed())
		require.Equal(t, alone(t, 2, m), numbersOf(t, result, rows))
	}

	short := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: place, Microbatches: 4})
	for rank := range short.Programs { // as in files of cells
		short.Programs[rank] = []schedule.Segment{{Body: slices.Collect(short.All(rank)), Repeat: 1}}
	}
	run = fixedOf(t, short, rows, 1)
	_, err := run.Step(t.Context(), 5, indexed())
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, `plan "1f1b" is for 4 microbatches, and its loops cannot be repeated to fit 5`)
	runStep(t, run, 4, indexed())
}

// TestFixedPlansGather runs a plan for sharded weights without replicas: there is nothing to gather.
func TestFixedPlansGather(t *testing.T) {
	place := schedule.Looped(2, 4)
	plan := plantest.Made(t, schedule.Interleaved, schedule.Params{Placement: place, Microbatches: 4})
	plan, err := lower.Shard(plan, 1)
	require.NoError(t, err)
	rows := rowsOf(place)
	run := fixedOf(t, plan, rows, 1)
	result := runStep(t, run, 4, indexed())
	require.Equal(t, alone(t, 4, 4), numbersOf(t, result, rows))
	evaluate(t, run, 3, indexed())
}

func TestFixedPlansAreRefused(t *testing.T) {
	place := schedule.Looped(2, 2)
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: place, Microbatches: 4})
	forwards := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: place, Microbatches: 4, Mode: schedule.ForwardOnly})
	for says, change := range map[string]func(cfg *runner.Config[number]){
		"Plan.Fixed is set: leave out Schedule, and": func(cfg *runner.Config[number]) { cfg.Schedule = "1f1b" },
		"in Plan leave out Rule, Placement":          func(cfg *runner.Config[number]) { cfg.Plan.Rule = schedule.OneFOneB },
		"Cap, Slices and Unchecked":                  func(cfg *runner.Config[number]) { cfg.Plan.Cap = 1 },
		"Plan.Fixed has 0 microbatches":              func(cfg *runner.Config[number]) { cfg.Plan.Fixed = &schedule.Plan{Placement: plan.Placement} },
		"mode forward-only":                          func(cfg *runner.Config[number]) { cfg.Plan.Fixed = forwards },
		"3 stages and a placement of 2":              func(cfg *runner.Config[number]) { cfg.Stages = append(cfg.Stages, cfg.Stages[1]) },
	} {
		cfg := config(rowsOf(place))
		cfg.Spaces = append(cfg.Spaces, config(nil).Spaces...)
		cfg.Topology.Copy = copyNumber
		cfg.Plan.Fixed = plan
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), says)
	}

	crossed, err := lower.Transfers(plan, schedule.Unlimited)
	require.NoError(t, err)
	other := *crossed
	other.Programs = slices.Clone(crossed.Programs)
	other.Programs[1] = other.Programs[1][:0]
	_, err = fixedOf(t, &other, rowsOf(place), 1).Step(t.Context(), 4, indexed())
	require.ErrorContains(t, err, "is invalid", "a file is proven as a rule's plan is")
}

// TestFixedPlansBringTheirCapacity trains with a plan for links of capacity 1, which deadlocks
// with a smaller capacity, and does not configure the links.
func TestFixedPlansBringTheirCapacity(t *testing.T) {
	place := schedule.Looped(2, 2)
	bare := &schedule.Plan{Name: "crossing", Placement: place, Mode: schedule.Training, Microbatches: 2, Capacity: 1}
	for _, text := range []string{"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0WAIT_F0 0WAIT_F1", "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1WAIT_B0 1WAIT_B1"} {
		var program schedule.Builder
		for _, word := range strings.Fields(text) {
			a, err := schedule.ParseAction(word)
			require.NoError(t, err)
			program.Append(a)
		}
		bare.Programs = append(bare.Programs, program.Program())
	}
	rows := rowsOf(place)
	result, err := fixedOf(t, bare, rows, 0).Step(t.Context(), 2, indexed())
	require.NoError(t, err)
	require.Equal(t, alone(t, 2, 2), numbersOf(t, result, rows))
}
