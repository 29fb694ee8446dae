package check_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

func TestSeveralRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks, depth := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 3).Draw(t, "depth")
		frozen := max(0, rapid.IntRange(-3, ranks*depth-1).Draw(t, "frozen"))
		microbatches, transfers := rapid.IntRange(1, 12).Draw(t, "microbatches"), rapid.Bool().Draw(t, "transfers")
		p := plantest.OneFOneB(ranks, depth, frozen, microbatches, transfers)
		require.NoError(t, check.Plan(p))
		marked := plantest.CheckLifetimes(t, p, plantest.DrawFacts(t, p, make([]bool, ranks*depth)))
		if marked == nil {
			return
		}
		for s := range ranks * depth {
			if frozen == 0 && s%depth == 0 && !transfers {
				require.Equal(t, min(ranks-s/depth, p.Microbatches), marked.StageWindows[s]) // the bound of 1F1B
			}
		}
		flat := plantest.Text(t, plantest.Expand(marked))
		back, err := schedule.ParseText(strings.NewReader(flat))
		require.NoError(t, err)
		require.NoError(t, check.Plan(back))
	})
}

// TestCheckOfRanks changes a 1F1B plan on three ranks.
func TestCheckOfRanks(t *testing.T) {
	const first, second, third = 0, 1, 2
	for _, test := range []struct {
		name  string
		alter func(p *schedule.Plan, body func(rank int) *[]schedule.Action)
		code  check.Code
		text  string
		also  []check.Code
	}{
		{"wrong rank", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			*body(third) = append(*body(third), schedule.NewAction(schedule.F, 1, 3))
		}, check.WrongRank, "Rank 2, action 20: 1F3 is on the wrong rank; move it to rank 1, which has stage 1.", []check.Code{check.Twice}},
		{"send missing", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			remove(body(first), schedule.NewAction(schedule.SendF, 0, 2))
			remove(body(first), schedule.NewAction(schedule.WaitF, 0, 2))
		}, check.Missing, "Rank 0 never runs 0SEND_F2; add it.", nil},
		{"gradient's receive missing", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			remove(body(second), schedule.NewAction(schedule.RecvB, 1, 2))
		}, check.Missing, "Rank 1 never runs 1RECV_B2; add it.", nil},
		{"wait for nothing", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			*body(third) = append(*body(third), schedule.NewAction(schedule.WaitF, 2, 1))
		}, check.Unexpected, "Rank 2, action 20: 2WAIT_F1 must not be in this plan: no rank boundary follows this stage.", nil},
		{"gradient's wait for nothing", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			*body(first) = append(*body(first), schedule.NewAction(schedule.WaitB, 0, 1))
		}, check.Unexpected, "Rank 0, action 20: 0WAIT_B1 must not be in this plan: no rank boundary precedes this stage.", nil},
		{"wait without its send", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			remove(body(second), schedule.NewAction(schedule.SendF, 1, 2))
		}, check.Missing, "Rank 1 never runs 1SEND_F2; add it.", nil},
		{"gradient's wait without its send", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			remove(body(second), schedule.NewAction(schedule.SendB, 1, 2))
		}, check.Missing, "Rank 1 never runs 1SEND_B2; add it.", nil},
		{"wait twice", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			*body(first) = append(*body(first), schedule.NewAction(schedule.WaitF, 0, 1))
		}, check.Twice, "Rank 0, action 20: 0WAIT_F1 is a duplicate; remove one of the two.", nil},
		{"wait too early", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			remove(body(first), schedule.NewAction(schedule.WaitF, 0, 1))
			*body(first) = slices.Insert(*body(first), 3, schedule.NewAction(schedule.WaitF, 0, 1))
		}, check.Order, "Rank 0, action 3: 0WAIT_F1 runs before 0SEND_F1, which it waits for; move 0SEND_F1 before it.", nil},
		{"wait for the other send of the stage", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			plantest.Swap(body(second), schedule.NewAction(schedule.WaitF, 1, 0), schedule.NewAction(schedule.WaitB, 1, 0))
		}, check.Order, "1WAIT_B0 runs before 1SEND_B0, which it waits for; move 1SEND_B0 before it.", nil},
		{"send too early", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			plantest.Swap(body(first), schedule.NewAction(schedule.SendF, 0, 1), schedule.NewAction(schedule.F, 0, 1))
		}, check.Order, "Rank 0, action 2: 0SEND_F1 runs before 0F1, whose output it sends; move 0F1 before it.", nil},
		{"gradient sent too early", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			plantest.Swap(body(third), schedule.NewAction(schedule.SendB, 2, 1), schedule.NewAction(schedule.B, 2, 1))
		}, check.Order, "Rank 2, action 6: 2SEND_B1 runs before 2B1, whose gradient it sends; move 2B1 before it.", nil},
		{"receive too late", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			plantest.Swap(body(third), schedule.NewAction(schedule.RecvF, 2, 1), schedule.NewAction(schedule.F, 2, 1))
		}, check.Order, "Rank 2, action 4: 2F1 runs before 2RECV_F1, which brings its input; move 2RECV_F1 before it.", nil},
		{"receives out of order", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			plantest.Swap(body(third), schedule.NewAction(schedule.RecvF, 2, 1), schedule.NewAction(schedule.RecvF, 2, 0))
		}, check.Pairing, "Rank 2, action 0: 2RECV_F1 receives 1SEND_F0, which rank 1 sent before 1SEND_F1; send and receive in the same order.", []check.Code{check.Order}},
		{"deadlock", func(_ *schedule.Plan, body func(int) *[]schedule.Action) {
			plantest.Swap(body(second), schedule.NewAction(schedule.RecvF, 1, 0), schedule.NewAction(schedule.RecvB, 1, 0))
		}, check.Deadlock, "Ranks 1 and 2 wait for each other:" +
			" rank 1 is at action 0, 1RECV_B0, and waits for 2SEND_B0 of rank 2;" +
			" rank 2 is at action 0, 2RECV_F0, and waits for 1SEND_F0 of rank 1;" +
			" put 1SEND_F0, with the actions that it needs, before 1RECV_B0 on rank 1.", []check.Code{check.Order, check.Pairing}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := plantest.Expand(plantest.OneFOneB(3, 1, 0, 4, true))
			test.alter(p, func(rank int) *[]schedule.Action { return &p.Programs[rank][0].Body })
			err := check.Plan(p)
			require.ErrorIs(t, err, check.ErrInvalidPlan)
			require.Equal(t, test.code == check.Deadlock, errors.Is(err, waitgraph.ErrDeadlock))
			require.ElementsMatch(t, append(test.also, test.code), plantest.CodesOf(err), "%v", err)
			require.Contains(t, err.Error(), test.text)
		})
	}
}

// An action needs its own receive, even if its stage is not the first stage of the rank that
// crosses to another rank.
func TestReceiveInTheMiddle(t *testing.T) {
	p := plantest.Expand(plantest.OneFOneB(2, 2, 0, 3, true))
	plantest.Swap(&p.Programs[1][0].Body, schedule.NewAction(schedule.RecvF, 2, 1), schedule.NewAction(schedule.F, 2, 1))
	err := check.Plan(p)
	plantest.RequireCodes(t, err, check.Order)
	require.ErrorContains(t, err, "2F1 runs before 2RECV_F1, which brings its input; move 2RECV_F1 before it.")
}

// Without transfers, a rank waits for the computation on the other rank.
func TestDeadlockWithoutTransfers(t *testing.T) {
	p := plantest.Expand(plantest.OneFOneB(2, 1, 0, 2, false))
	plantest.Swap(&p.Programs[0][0].Body, schedule.NewAction(schedule.F, 0, 1), schedule.NewAction(schedule.B, 0, 0))
	require.NoError(t, check.Plan(p))
	plantest.Swap(&p.Programs[1][0].Body, schedule.NewAction(schedule.B, 1, 0), schedule.NewAction(schedule.F, 1, 1))
	err := check.Plan(p)
	require.ErrorIs(t, err, waitgraph.ErrDeadlock)
	invalid, ok := errors.AsType[*check.Error](err)
	require.True(t, ok)
	require.Equal(t, []check.Fault{{Code: check.Deadlock, Rank: 0, Position: 1, Action: schedule.NewAction(schedule.B, 0, 0),
		Text: "Ranks 0 and 1 wait for each other: rank 0 is at action 1, 0B0, and waits for 1B0 of rank 1;" +
			" rank 1 is at action 1, 1F1, and waits for 0F1 of rank 0; put 0F1, with the actions that it needs, before 0B0 on rank 0.",
		Cycle: []waitgraph.Waiting{
			{Rank: 0, Position: 1, Action: schedule.NewAction(schedule.B, 0, 0), For: schedule.NewAction(schedule.B, 1, 0), ForRank: 1},
			{Rank: 1, Position: 1, Action: schedule.NewAction(schedule.F, 1, 1), For: schedule.NewAction(schedule.F, 0, 1), ForRank: 0},
		}}}, invalid.Faults)
}

// A sent buffer ends with the wait for its own send (L4). The middle stage sends in both
// directions.
func TestSendsAreWaitedFor(t *testing.T) {
	marked, err := lower.Lifetimes(plantest.OneFOneB(3, 1, 0, 4, true), make([]schedule.StageInfo, 3), 0)
	require.NoError(t, err)
	require.NoError(t, check.Plan(marked))

	for _, test := range []struct {
		name  string
		alter func(body *[]schedule.Action)
		code  check.Code
		text  string
	}{
		{"wait without drop", withDrop(schedule.WaitF, 0), check.MissingDrop, "1WAIT_F1 takes the sent buffer and must drop it; give it drop t."},
		{"gradient's wait without drop", withDrop(schedule.WaitB, schedule.Retire), check.MissingDrop, "1WAIT_B1 takes the sent buffer and must drop it; give it drop t."},
		{"no wait", func(body *[]schedule.Action) {
			remove(body, schedule.NewAction(schedule.WaitF, 1, 1).WithDrop(schedule.DropSent))
		}, check.MissingDrop, "Rank 1 never waits for 1SEND_F of microbatch 1; add a WAIT_F with drop t for each."},
		{"no wait for gradients", func(body *[]schedule.Action) {
			withDrop(schedule.SendB, schedule.Retire)(body)
			remove(body, schedule.NewAction(schedule.WaitB, 1, 1).WithDrop(schedule.DropSent|schedule.Retire))
		}, check.MissingDrop, "Rank 1 never waits for 1SEND_B of microbatch 1; add a WAIT_B with drop t for each."},
		{"drop at a receive", withDrop(schedule.RecvF, schedule.DropSent), check.MisplacedDrop, "1RECV_F1 drops the sent buffer, but there is none to drop here; remove drop t."},
		{"drop in flight", withDrop(schedule.SendF, schedule.DropSent), check.UseAfterDrop, "1SEND_F1 drops the sent buffer, which a later action uses; remove drop t."},
		{"gradient's drop in flight", withDrop(schedule.SendB, schedule.DropSent), check.UseAfterDrop, "1SEND_B1 drops the sent buffer, which a later action uses; remove drop t."},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := plantest.Expand(marked)
			test.alter(&p.Programs[1][0].Body)
			err := check.Plan(p)
			plantest.RequireCodes(t, err, test.code)
			require.ErrorContains(t, err, test.text)
		})
	}
}

// withDrop returns a function that sets the drops of the action of a kind of stage 1 and microbatch 1.
func withDrop(kind schedule.Kind, drop schedule.Drop) func(*[]schedule.Action) {
	return func(body *[]schedule.Action) {
		i := slices.IndexFunc(*body, func(a schedule.Action) bool { return a.WithDrop(0) == schedule.NewAction(kind, 1, 1) })
		(*body)[i] = (*body)[i].WithDrop(drop)
	}
}

// Each wait of a stage waits for its own send, in any order.
func TestWaitsInAnyOrder(t *testing.T) {
	p := plantest.Expand(plantest.OneFOneB(3, 1, 0, 4, true))
	body := &p.Programs[1][0].Body
	for mb := range p.Microbatches {
		wait := schedule.NewAction(schedule.WaitF, 1, mb)
		remove(body, wait)
		*body = slices.Insert(*body, slices.Index(*body, schedule.NewAction(schedule.WaitB, 1, mb))+mb%2, wait)
	}
	require.NoError(t, check.Plan(p))
	marked := plantest.CheckLifetimes(t, p, make([]schedule.StageInfo, 3))
	require.Contains(t, plantest.Text(t, marked), "1WAIT_F2~t 1WAIT_B2~tr 1WAIT_B3~t")
}

// A wait for a send that the plan must not have is a fault.
func TestWaitWithoutTransfers(t *testing.T) {
	p := plantest.Expand(plantest.OneFOneB(2, 1, 0, 2, false))
	p.Programs[0][0].Body = append(p.Programs[0][0].Body, schedule.NewAction(schedule.WaitF, 0, 0))
	err := check.Plan(p)
	plantest.RequireCodes(t, err, check.Unexpected)
	require.ErrorContains(t, err, "Rank 0, action 4: 0WAIT_F0 must not be in this plan: the plan sends nothing.")

	p = plantest.Expand(plantest.OneFOneB(2, 1, 1, 2, true))
	p.Programs[1][0].Body = append(p.Programs[1][0].Body, schedule.NewAction(schedule.WaitB, 1, 0))
	err = check.Plan(p)
	plantest.RequireCodes(t, err, check.Unexpected)
	require.ErrorContains(t, err, "1WAIT_B0 must not be in this plan: the previous stage has no backward, so no gradient goes back.")
}

// The steady state of 1F1B is one segment, and remains one segment with drops.
func TestLifetimesKeepSegments(t *testing.T) {
	p := plantest.OneFOneB(4, 1, 0, 1_000, false)
	marked, err := lower.Lifetimes(p, make([]schedule.StageInfo, 4), 0)
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, marked.WriteText(&text))
	require.Contains(t, text.String(), "\nrank 0: entries=1\nx 3 +1: 0F0\nx 997 +1: 0F3 0B0~gsr\nx 3 +1: 0B997~gsr\n")
}

func remove(body *[]schedule.Action, a schedule.Action) {
	*body = slices.DeleteFunc(slices.Clone(*body), func(b schedule.Action) bool { return b == a })
}
