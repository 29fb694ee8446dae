package lower_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// bruteOffload returns the list of a rank with its offloads. It follows the definition of Offload
// directly: it numbers the computations and puts each action into the gap after one of them.
func bruteOffload(p *schedule.Plan, list []schedule.Action, away []uint64, overlap int) []schedule.Action {
	var numbers []int // by position: the number of computations that have begun, counting a joined pair as one
	n := 0
	for i, a := range list {
		if a.Kind().Compute() && (i == 0 || !list[i-1].Joined()) {
			n++
		}
		numbers = append(numbers, n)
	}
	gaps := make([][3][]schedule.Action, n+1) // by the preceding computation: OFFLOAD, WAIT_OFFLOAD, RELOAD
	for i, f := range list {
		if f.Kind() != schedule.F || away[f.Stage()] == 0 || !p.HasBackward(f.Stage()) {
			continue
		}
		for k, b := range list {
			if b.Stage() != f.Stage() || b.Microbatch() != f.Microbatch() || b.Kind() != schedule.B && b.Kind() != schedule.I || numbers[k]-numbers[i] < 2*overlap+2 {
				continue
			}
			for which, at := range [3]int{numbers[i], numbers[i] + overlap, numbers[k] - overlap - 1} {
				kind := [3]schedule.Kind{schedule.Offload, schedule.WaitOffload, schedule.Reload}[which]
				gaps[at][which] = append(gaps[at][which], schedule.NewAction(kind, f.Stage(), f.Microbatch()).WithJoin(false))
				if kind == schedule.Reload {
					slices.SortFunc(gaps[at][which], func(a, b schedule.Action) int {
						return slices.IndexFunc(list, takes(a)) - slices.IndexFunc(list, takes(b))
					})
				}
			}
		}
	}
	var out []schedule.Action
	for i := 0; i < len(list); {
		end := i // the end of the gap after this computation
		for end < len(list) && numbers[end] == numbers[i] {
			end++
		}
		at := i // the position after its computations and sends
		for k := i; k < end; k++ {
			if kind := list[k].Kind(); kind.Compute() || kind == schedule.SendF || kind == schedule.SendB {
				at = k + 1
			}
		}
		out = append(out, list[i:at]...)
		for _, actions := range gaps[numbers[i]] {
			out = append(out, actions...)
		}
		out = append(out, list[at:end]...)
		i = end
	}
	return out
}

// takes returns a function that matches the B or I of the action's stage and microbatch.
func takes(a schedule.Action) func(b schedule.Action) bool {
	return func(b schedule.Action) bool {
		return b.Stage() == a.Stage() && b.Microbatch() == a.Microbatch() && (b.Kind() == schedule.B || b.Kind() == schedule.I)
	}
}

// requireOffloads compares the pass with bruteOffload, and proves its result with lifetimes.
func requireOffloads(t *testing.T, p *schedule.Plan, away []uint64, overlap int, facts []schedule.StageInfo) *schedule.Plan {
	got, err := lower.Offload(p, away, overlap)
	require.NoError(t, err)
	moves := make([]bool, len(away))
	for rank := range p.Programs {
		want := bruteOffload(p, slices.Collect(plainly(p, rank)), away, max(overlap, 1))
		require.Equal(t, want, slices.Collect(got.All(rank)), "rank %d of\n%s", rank, plantest.Text(t, p))
		for _, a := range want {
			moves[a.Stage()] = moves[a.Stage()] || a.Kind() == schedule.Offload
		}
	}
	for stage := range moves {
		require.Equal(t, moves[stage], got.OffloadSlots != nil && got.OffloadSlots[stage] == away[stage] && away[stage] != 0)
	}
	require.Equal(t, slices.Contains(moves, true), got.OffloadSlots != nil)
	near := lower.WithoutOffload(got)
	require.Nil(t, near.OffloadSlots)
	for rank := range p.Programs {
		require.Equal(t, slices.Collect(plainly(p, rank)), slices.Collect(near.All(rank)))
	}
	if facts != nil {
		if marked := plantest.CheckLifetimes(t, got, facts); marked != nil {
			require.Empty(t, plantest.OffloadFault(marked))
		}
	} else {
		require.NoError(t, check.Plan(got))
	}
	return got
}

// plainly returns the actions of a rank without drops.
func plainly(p *schedule.Plan, rank int) func(func(schedule.Action) bool) {
	return func(yield func(schedule.Action) bool) {
		for a := range p.All(rank) {
			if !yield(a.WithDrop(0)) {
				return
			}
		}
	}
}

func TestOffloadEverySchedule(t *testing.T) {
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			moved := 0
			for _, ranks := range []int{1, 2, 4} {
				place, err := s.Place(ranks, ranks*s.PerRank)
				require.NoError(t, err)
				for _, microbatches := range []int{1, 2, 4, 7, 8, 16, 48, 51, 54} {
					p := schedule.Params{Placement: place, Microbatches: microbatches}
					if s.Name == "seq1f1b" {
						p.Slices = 2
					}
					plan, err := s.Rule(p)
					if err != nil {
						continue // the rule does not accept this number of microbatches
					}
					away := make([]uint64, place.Stages())
					for stage := range away {
						away[stage] = uint64(stage%3 + 1)
					}
					if ranks > 1 {
						plan = transferred(t, plan, 0)
					}
					facts := make([]schedule.StageInfo, place.Stages())
					for stage := range facts {
						facts[stage].Split = s.Split
					}
					if offloaded := requireOffloads(t, plan, away, microbatches%4, facts); offloaded.OffloadSlots != nil {
						moved++
					}
				}
			}
			require.Greater(t, moved, 3)
		})
	}
}

// TestOffloadRandomPlans includes joins, frozen stages, copies of the model, reductions and plans
// without transfers.
func TestOffloadRandomPlans(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 0))
	moved := 0
	for range 3000 {
		p, _ := plantest.Grow(rng, plantest.DrawFeatures(rng))
		away := make([]uint64, p.Placement.Stages())
		for stage := range away {
			away[stage] = uint64(rng.IntN(3))
		}
		if requireOffloads(t, p, away, rng.IntN(4), nil).OffloadSlots != nil {
			moved++
		}
	}
	require.Greater(t, moved, 300)
}

// TestOffloadAMillion requires that offloads add only a constant number of segments to a long plan.
func TestOffloadAMillion(t *testing.T) {
	for _, s := range schedule.Schedules() {
		if s.Name == "breadth-first" || s.Name == "gpipe" {
			continue // all forwards run first
		}
		place, err := s.Place(4, 4*s.PerRank)
		require.NoError(t, err)
		plan := plantest.Made(t, s.Rule, schedule.Params{Placement: place, Microbatches: 1_000_000})
		away := slices.Repeat([]uint64{1}, place.Stages())
		facts := make([]schedule.StageInfo, place.Stages())
		for stage := range facts {
			facts[stage].Split = s.Split
		}
		ready, err := lower.Prepare(plan, lower.Passes{StageInfo: facts, OffloadSlots: away, Overlap: 1 + place.Stages()%3})
		require.NoError(t, err, s.Name)
		require.NotNil(t, ready.OffloadSlots)
		proof, err := check.Prove(ready, 0)
		require.NoError(t, err)
		require.Less(t, proof.Visited, int64(100_000), s.Name)
		for rank, program := range ready.Programs {
			n := 0
			for range schedule.StaticActions(program) {
				n++
			}
			require.Less(t, n, 3000, "%s, rank %d", s.Name, rank)
		}
	}
}

func TestOffloadRefuses(t *testing.T) {
	plan := plantest.Made(t, schedule.GPipe, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 8})
	_, err := lower.Offload(plan, []uint64{1}, 0)
	require.ErrorIs(t, err, schedule.ErrParams)
	offloaded, err := lower.Offload(plan, []uint64{1, 1}, 0)
	require.NoError(t, err)
	_, err = lower.Offload(offloaded, []uint64{1, 1}, 0)
	require.ErrorIs(t, err, schedule.ErrParams)
	inPyTorch := *plan
	inPyTorch.Runtime = schedule.PyTorch
	_, err = lower.Offload(&inPyTorch, []uint64{1, 1}, 0)
	require.ErrorIs(t, err, schedule.ErrParams)
	for _, p := range []schedule.Params{
		{Placement: schedule.Looped(2, 2), Microbatches: 8, Mode: schedule.ForwardOnly},
		{Placement: schedule.Looped(2, 2), Microbatches: 2},
	} {
		plan := plantest.Made(t, schedule.GPipe, p)
		offloaded, err := lower.Offload(plan, []uint64{1, 1}, 0)
		require.NoError(t, err)
		require.Nil(t, offloaded.OffloadSlots)
		require.Equal(t, plantest.Text(t, plan), plantest.Text(t, offloaded))
	}
	for _, overlap := range []int{-1, 65} {
		_, err = lower.Offload(plan, []uint64{1, 1}, overlap)
		require.ErrorIs(t, err, schedule.ErrParams)
	}
	invalid := *plan
	invalid.Programs = invalid.Programs[:1]
	_, err = lower.Offload(&invalid, []uint64{1, 1}, 0)
	require.ErrorIs(t, err, check.ErrInvalidPlan)
}
