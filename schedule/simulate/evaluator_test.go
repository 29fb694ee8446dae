package simulate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// TestEvaluator compares an evaluator with Run, for every schedule, with random costs and sizes.
func TestEvaluator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := schedule.Schedules()
		rule := list[rapid.IntRange(0, len(list)-1).Draw(t, "schedule")]
		ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
		place, err := rule.Place(ranks, rule.PerRank*ranks)
		require.NoError(t, err)
		plan, err := rule.Rule(schedule.Params{Placement: place, Microbatches: rapid.IntRange(1, 12).Draw(t, "microbatches")})
		if err != nil {
			return
		}
		capacity := rapid.IntRange(-1, 3).Draw(t, "capacity")
		if rapid.Bool().Draw(t, "transfers") && ranks > 1 {
			plan, err = lower.Transfers(plan, capacity)
			require.NoError(t, err)
		}
		costs := drawCosts(t, plan)
		e, err := simulate.NewEvaluator(plan, costs, capacity)
		joined := false
		for _, program := range plan.Programs {
			for a := range schedule.StaticActions(program) {
				joined = joined || a.Joined()
			}
		}
		if joined || plan.HasTransfers() && capacity == 0 {
			require.ErrorIs(t, err, schedule.ErrParams)
			return
		}
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "sizes"), 0))
		for range 3 {
			costs.Lengths = nil
			for mb := range plan.Microbatches {
				size := lengths.Of(1+random.IntN(30), 1+random.IntN(30))
				costs.Lengths = append(costs.Lengths, size)
				e.Set(mb, size)
			}
			if a, b := random.IntN(plan.Microbatches), random.IntN(plan.Microbatches); random.IntN(2) == 0 {
				costs.Lengths[a], costs.Lengths[b] = costs.Lengths[b], costs.Lengths[a]
				e.Swap(a, b)
			}
			byItem := *costs // the costs give sizes in the order of the batch
			byItem.Lengths = make([]lengths.Size, plan.Microbatches)
			for mb, size := range costs.Lengths {
				byItem.Lengths[plan.BatchIndex(mb)] = size
			}
			want := reportOf(t, plan, &byItem, capacity)
			require.Equal(t, want.Makespan, e.Makespan())
			for rank := range want.Ranks {
				require.Equal(t, want.Ranks[rank].Busy, e.Busy(rank), "rank %d", rank)
				require.Equal(t, want.Ranks[rank].Peak, e.Peak(rank), "rank %d", rank)
			}
		}
	})
}

// An evaluator moves sizes between microbatches, which times of single actions do not follow.
func TestEvaluatorRefusesEach(t *testing.T) {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
	require.NoError(t, err)
	_, err = simulate.NewEvaluator(plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1}}, Each: func(schedule.Action) int64 { return 1 }}, schedule.Unlimited)
	require.ErrorIs(t, err, simulate.ErrCosts)
}

// Repeats are skipped if the microbatches have equal lengths, and not if they have different ones.
func TestLengthsSkipNothing(t *testing.T) {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 400})
	require.NoError(t, err)
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{PerToken: simulate.Rates{F: 1, I: 1, W: 1, Saved: 1}}}}
	for range 400 { // equal, but for one in the middle
		costs.Lengths = append(costs.Lengths, lengths.Of(100))
	}
	costs.Lengths[250] = lengths.Of(5000)
	want, _, err := simulate.InFull(plan, costs, schedule.Unlimited)
	require.NoError(t, err)
	got, err := simulate.Leaping(plan, costs, schedule.Unlimited)
	require.NoError(t, err)
	got.Critical = nil
	require.Equal(t, want, got)
	all := workOf(t, plan, costs, schedule.Unlimited)
	for mb := range costs.Lengths {
		costs.Lengths[mb] = lengths.Of(100)
	}
	few := workOf(t, plan, costs, schedule.Unlimited)
	require.Less(t, few, all/4)
}
