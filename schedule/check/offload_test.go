package check_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// offloaded returns a plan, as plain lists with drops, that offloads as much as possible.
func offloaded(t *testing.T, name string, ranks, microbatches int) *schedule.Plan {
	s, place := plantest.Find(t, name, ranks, 0)
	plan := plantest.Made(t, s.Rule, schedule.Params{Placement: place, Microbatches: microbatches})
	facts := make([]schedule.StageInfo, place.Stages())
	for stage := range facts {
		facts[stage].Split = s.Split
	}
	plan, err := lower.Prepare(plan, lower.Passes{StageInfo: facts, OffloadSlots: slices.Repeat([]uint64{1}, place.Stages())})
	require.NoError(t, err)
	require.NotNil(t, plan.OffloadSlots)
	return plantest.Expand(plan)
}

// TestEveryEdgeOfAnOffload removes one dependency of the copies of a microbatch at a time.
func TestEveryEdgeOfAnOffload(t *testing.T) {
	const text = `weir plan 1 name "one" mode training ranks 1 stages 1 microbatches 3 placement 0 frozen none
		stage 0: window=3 away=0 facts=- reads=- drops=- rank 0: entries=1
		x 1 +0: 0F0~o 0OFFLOAD0 0F1~o 0WAIT_OFFLOAD0~s 0F2~o 0RELOAD0 0B1~sr 0B0~sra 0B2~sr`
	read := func(text string) *schedule.Plan {
		plan, err := schedule.ParseText(strings.NewReader(text))
		require.NoError(t, err)
		return plan
	}
	require.NoError(t, check.Plan(read(text)))
	require.Empty(t, plantest.OffloadFault(read(text)))
	for _, c := range []struct {
		bug      string
		old, new []string
		code     check.Code
		fault    string
	}{
		{"a copy back that races its own copy out", []string{"0WAIT_OFFLOAD0~s ", "0RELOAD0"}, []string{"", "0RELOAD0 0WAIT_OFFLOAD0~s"}, check.Order,
			"Rank 0, action 4: 0RELOAD0 reloads before 0WAIT_OFFLOAD0, but the copy to far memory may not be complete; move 0WAIT_OFFLOAD0 before it."},
		{"no wait for the copy out", []string{"0WAIT_OFFLOAD0~s "}, []string{""}, check.Order,
			"Rank 0, action 4: 0RELOAD0 reloads before 0WAIT_OFFLOAD0, but the copy to far memory may not be complete; move 0WAIT_OFFLOAD0 before it."},
		{"the near buffer freed before the wait", []string{"0OFFLOAD0 ", "0WAIT_OFFLOAD0~s"}, []string{"0OFFLOAD0~s ", "0WAIT_OFFLOAD0"}, check.MisplacedDrop,
			"Rank 0, action 1: 0OFFLOAD0 drops s, which does not end here; remove drop s."},
		{"taken before the copy back", []string{"0RELOAD0 ", "0B0~sra"}, []string{"", "0B0~sra 0RELOAD0"}, check.UseAfterDrop,
			"Rank 0, action 6: 0B0 takes saved state that is in far memory; put 0RELOAD0 before it."},
		{"taken without a wait for the copy back", []string{"0B0~sra"}, []string{"0B0~sr"}, check.MissingDrop,
			"Rank 0, action 7: 0B0 takes saved state that was in far memory and must drop the copy there; give it drop a."},
		{"the far copy freed too early", []string{"0RELOAD0", "0B0~sra"}, []string{"0RELOAD0~a", "0B0~sr"}, check.MisplacedDrop,
			"Rank 0, action 5: 0RELOAD0 drops a far copy, but none ends here; remove drop a."},
		{"the far copy freed by another microbatch", []string{"0B1~sr", "0B0~sra"}, []string{"0B1~sra", "0B0~sr"}, check.MisplacedDrop,
			"Rank 0, action 6: 0B1 drops a far copy, but none ends here; remove drop a."},
		{"a stash that stays near", []string{"0WAIT_OFFLOAD0~s"}, []string{"0WAIT_OFFLOAD0"}, check.MissingDrop,
			"Rank 0, action 3: 0WAIT_OFFLOAD0 completes a copy to far memory and must drop the near buffers; give it drop s."},
		{"a stash that stays far", []string{"0RELOAD0 ", "0B0~sra"}, []string{"", "0B0~sr"}, check.UseAfterDrop,
			"Rank 0, action 6: 0B0 takes saved state that is in far memory; put 0RELOAD0 before it."},
		{"offloaded before it is saved", []string{"0F0~o 0OFFLOAD0"}, []string{"0OFFLOAD0 0F0~o"}, check.Order,
			"Rank 0, action 0: 0OFFLOAD0 runs before 0F0, which saves what it moves; move 0F0 before it."},
		{"offloaded after it is taken", []string{"0OFFLOAD0 ", "0WAIT_OFFLOAD0~s ", "0RELOAD0 ", "0B0~sra"}, []string{"", "", "", "0B0~s 0OFFLOAD0"}, check.Order,
			"Rank 0, action 5: 0OFFLOAD0 moves saved state that was already taken; move it before the action that takes it, or remove it."},
		{"offloaded twice", []string{"0F2~o"}, []string{"0F2~o 0OFFLOAD0"}, check.Twice,
			"Rank 0, action 5: 0OFFLOAD0 moves saved state that was moved before; remove one of the two."},
		{"a wait without a copy", []string{"0OFFLOAD0 "}, []string{""}, check.Order,
			"Rank 0, action 2: 0WAIT_OFFLOAD0 waits for a copy that has not started; put 0OFFLOAD0 before it."},
		{"reloaded twice", []string{"0RELOAD0"}, []string{"0RELOAD0 0RELOAD0"}, check.Order,
			"Rank 0, action 6: 0RELOAD0 reloads saved state that is not in far memory; put 0OFFLOAD0 and its WAIT_OFFLOAD before it."},
		{"neither waited for nor reloaded", []string{"0WAIT_OFFLOAD0~s ", "0RELOAD0 "}, []string{"", ""}, check.Order,
			"Rank 0, action 5: 0B0 takes saved state that is being copied to far memory; put 0WAIT_OFFLOAD0 and 0RELOAD0 before it."},
		{"copies out waited for out of order", []string{"0F1~o 0WAIT_OFFLOAD0~s", "0B1~sr ", "0B0~sra"}, []string{"0F1~o 0OFFLOAD1 0WAIT_OFFLOAD1~s 0WAIT_OFFLOAD0~s", "", "0RELOAD1 0B0~sra 0B1~sra"}, check.Pairing,
			"Rank 0, action 4: 0WAIT_OFFLOAD1 waits for the copy of 0OFFLOAD1, but 0OFFLOAD0 started earlier; wait for copies in the order in which they start."},
		{"copies back waited for out of order", []string{"0F1~o 0WAIT_OFFLOAD0~s", "0B1~sr"}, []string{"0F1~o 0OFFLOAD1 0WAIT_OFFLOAD0~s 0WAIT_OFFLOAD1~s", "0RELOAD1 0B1~sra"}, check.Pairing,
			"Rank 0, action 9: 0B1 waits for the copy of 0RELOAD1, but 0RELOAD0 started earlier; wait for copies in the order in which they start."},
		{"no slot of the stage", []string{"away=0"}, []string{"away=-"}, check.Unexpected,
			"Rank 0, action 1: 0OFFLOAD0 must not be in this plan: OffloadSlots lists no slot of the stage for far memory."},
		{"a plan of PyTorch", []string{"microbatches 3"}, []string{"microbatches 3 runtime pytorch"}, check.Unexpected,
			"Rank 0, action 1: 0OFFLOAD0 must not be in this plan: PyTorch cannot move saved state to far memory."},
		{"no backward", []string{"training", " 0B1~sr 0B0~sra 0B2~sr", "F0~o", "F1~o", "F2~o"}, []string{"forward-only", "", "F0~osr", "F1~osr", "F2~osr"}, check.Unexpected,
			"Rank 0, action 1: 0OFFLOAD0 must not be in this plan: the stage has no backward, so nothing takes its saved state later."},
	} {
		broken := text
		for i := range c.old {
			require.Equal(t, 1, strings.Count(broken, c.old[i]), "%s: %s", c.bug, c.old[i])
			broken = strings.Replace(broken, c.old[i], c.new[i], 1)
		}
		plan := read(broken)
		err := check.Plan(plan)
		require.ErrorIs(t, err, check.ErrInvalidPlan, c.bug)
		found := err.(*check.Error).Faults[0]
		require.Equal(t, c.fault, found.Text, c.bug)
		require.Equal(t, c.code, found.Code, c.bug)
		if c.code != check.Unexpected {
			require.NotEmpty(t, plantest.OffloadFault(plan), c.bug)
		}
	}
}

// TestOffloadsAreJudgedAlike changes the offloads of plans in one place, and requires that the
// check rejects exactly the plans with an incorrect copy.
func TestOffloadsAreJudgedAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 0))
	refused, accepted := 0, 0
	for _, p := range []*schedule.Plan{
		offloaded(t, "1f1b", 4, 7), offloaded(t, "interleaved", 2, 6), offloaded(t, "zb-v", 2, 8), offloaded(t, "dualpipev", 2, 8), offloaded(t, "gpipe", 1, 5),
	} {
		require.NoError(t, check.Plan(p))
		require.Empty(t, plantest.OffloadFault(p))
		for range 1500 {
			q := *p
			lists := plantest.Lists(p)
			rank := rng.IntN(len(lists))
			concerned := func(a schedule.Action) bool {
				return a.Kind() >= schedule.Offload && a.Kind() <= schedule.Reload || a.Drop()&schedule.DropFar != 0
			}
			var places []int
			for i, a := range lists[rank] {
				if concerned(a) {
					places = append(places, i)
				}
			}
			if len(places) == 0 {
				continue
			}
			list, at := lists[rank], places[rng.IntN(len(places))]
			a := list[at]
			switch n := rng.IntN(6); {
			case n == 0:
				list[at] = a.WithDrop(a.Drop() ^ schedule.DropFar)
			case n == 1 && a.Kind() >= schedule.Offload:
				list[at] = a.WithDrop(a.Drop() ^ schedule.DropSaved)
			case a.Kind() < schedule.Offload || joined(list, at):
				continue
			case n == 2:
				list = slices.Delete(list, at, at+1)
			case n == 3:
				list = slices.Insert(list, at+1+rng.IntN(len(list)-at-1), a)
			default:
				to := rng.IntN(len(list))
				if to > 0 && list[to-1].Joined() {
					continue
				}
				list = slices.Insert(slices.Delete(list, at, at+1), min(to, len(list)-1), a)
			}
			for i := range list[1:] {
				if list[i].Joined() && !list[i+1].Kind().Compute() {
					list = nil // moved into a joined pair
					break
				}
			}
			if list == nil {
				continue
			}
			q.Programs = slices.Clone(p.Programs)
			q.Programs[rank] = []schedule.Segment{{Body: list, Repeat: 1}}
			fault, err := plantest.OffloadFault(&q), check.Plan(&q)
			if fault != "" {
				refused++
				require.ErrorIs(t, err, check.ErrInvalidPlan, "%s\n%s", fault, plantest.Text(t, &q))
			} else if err != nil {
				require.Equal(t, []check.Code{check.BadRetire}, plantest.CodesOf(err), "%v\n%s", err, plantest.Text(t, &q))
			} else {
				accepted++
			}
		}
	}
	require.Greater(t, refused, 1000)
	require.Greater(t, accepted, 100)
}

func joined(list []schedule.Action, at int) bool { return at > 0 && list[at-1].Joined() }
