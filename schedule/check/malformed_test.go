package check_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// Programs of plans on two ranks; the tests change single actions.
const (
	first  = "0F0 0F1 0B0 0B1"
	second = "1F0 1B0 1F1 1B1"

	firstSplit  = "0F0 0F1 0I0 0W0 0I1 0W1"
	secondSplit = "1F0 1I0 1F1 1I1 1W0 1W1"

	firstSends  = "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1"
	secondSends = "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"
)

// TestMalformedPlans checks kinds of malformed plans, most of which PyTorch loads without an error.
func TestMalformedPlans(t *testing.T) {
	for _, test := range []struct {
		name          string
		first, second string
		code          check.Code
		text          string
		also          []check.Code
	}{
		{"F twice", "0F0 0F0 0F1 0B0 0B1", second, check.Twice,
			"Rank 0, action 1: 0F0 is a duplicate; remove one of the two.", nil},
		{"B twice", first + " 0B1", second, check.Twice,
			"Rank 0, action 4: 0B1 is a duplicate; remove one of the two.", nil},
		{"unknown microbatch", first, second + " 1F99 1B99", check.UnknownMicrobatch,
			"Rank 1, action 4: 1F99 belongs to an unknown microbatch; microbatches are 0 to 1.", nil},
		{"B and also I and W for one microbatch, nothing for the other", first, "1F0 1B0 1I0 1W0 1F1", check.Mixed,
			"Rank 1, action 2: 1I0 conflicts with a full backward, B, of the same stage and microbatch; use B, or I and W.", []check.Code{check.Missing}},
		{"deadlock", "0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", check.Deadlock,
			"Ranks 0 and 1 wait for each other: rank 0 is at action 1, 0B0, and waits for 1B0 of rank 1;" +
				" rank 1 is at action 1, 1F1, and waits for 0F1 of rank 0; put 0F1, with the actions that it needs, before 0B0 on rank 0.", nil},
		{"overlap of dependent actions", first, "1F0& 1B0 1F1 1B1", check.BadJoin,
			"Rank 1, action 0: 1F0 is joined with 1B0; a join needs two computations that do not depend on each other.", nil},
		{"reduction before the last W", firstSplit + " 0REDUCE_GRAD", "1F0 1I0 1F1 1I1 1W0 1REDUCE_GRAD 1W1", check.Reduction,
			"Rank 1, action 6: 1W1 adds to gradients after their last reduction; move 1REDUCE_GRAD after the last B or W of the stage.", nil},
		{"compute without weights", "0UNSHARD 0F0 0F1 0RESHARD 0B0 0B1", second, check.Sharding,
			"Rank 0, action 4: 0B0 computes with weights that are not gathered; put an UNSHARD of stage 0 before it, and its RESHARD after it.", nil},
		{"receive without its send", strings.Replace(firstSends, " 0SEND_F1", "", 1), secondSends, check.Missing,
			"Rank 0 never runs 0SEND_F1; add it.", nil},
		{"receive twice", firstSends, strings.Replace(secondSends, "1RECV_F1", "1RECV_F1 1RECV_F1", 1), check.Twice,
			"Rank 1, action 5: 1RECV_F1 is a duplicate; remove one of the two.", nil},
		{"send twice", strings.Replace(firstSends, "0SEND_F1", "0SEND_F0 0SEND_F1", 1), secondSends, check.Twice,
			"Rank 0, action 3: 0SEND_F0 is a duplicate; remove one of the two.", nil},
		{"deadlock of a joined pair", "0F0 0B0& 0F1 0B1", "1F0 1F1 1B0 1B1", check.Deadlock,
			"rank 0 is at action 1, 0B0 joined with 0F1, and waits for 1B0 of rank 1;", nil},
		{"deadlock and another fault", "0F0 0I0 0W0 0F1 0I1 0W1", "1F0 1F1 1I0 1W0 1I1 1W1 1W1", check.Deadlock,
			"rank 0 is at action 1, 0I0, and waits for 1I0 of rank 1;", []check.Code{check.Twice}},
		{"join with an unknown stage", first, "1F0& 2F1 1B0 1F1 1B1", check.UnknownStage,
			"Rank 1, action 1: 2F1 belongs to an unknown stage; stages are 0 to 1.", nil},
		{"crossed order", "0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1", secondSends, check.Pairing,
			"Rank 1, action 0: 1RECV_F0 receives 0SEND_F1, which rank 0 sent before 0SEND_F0; send and receive in the same order.", nil},
		{"B before F", first, "1B0 1F0 1F1 1B1", check.Order,
			"Rank 1, action 0: 1B0 runs before 1F0, which saves the state it takes; move 1F0 before it.", nil},
		{"W before I", firstSplit, "1F0 1W0 1I0 1F1 1I1 1W1", check.Order,
			"Rank 1, action 1: 1W0 runs before 1I0, which saves the state it takes; move 1I0 before it.", nil},
		{"a stage on two ranks", "0F0 0F1 0B0", second + " 0B1", check.WrongRank,
			"Rank 1, action 4: 0B1 is on the wrong rank; move it to rank 0, which has stage 0.", nil},
		{"a missing microbatch", "0F0 0F1 0B0", second, check.Missing,
			"Rank 0 never runs 0B1; add it.", nil},
		{"send without its receive", firstSends, strings.Replace(secondSends, "1RECV_F1 ", "", 1), check.Missing,
			"Rank 1 never runs 1RECV_F1; add it.", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check.Plan(plantest.FromText(t, "0 1", 2, test.first, test.second))
			require.ErrorIs(t, err, check.ErrInvalidPlan)
			require.ErrorContains(t, err, test.text)
			require.ElementsMatch(t, append(test.also, test.code), plantest.CodesOf(err), "%v", err)
		})
	}
	for _, good := range [][2]string{{first, second}, {firstSplit, secondSplit}, {firstSends, secondSends}} {
		require.NoError(t, check.Plan(plantest.FromText(t, "0 1", 2, good[0], good[1])))
	}
}

// A rank may wait for the first action of another rank.
func TestDeadlockAtTheBeginning(t *testing.T) {
	err := check.Plan(plantest.FromText(t, "0 1 0", 1, "0F0 0I0 0W0 2F0 2I0 2W0", "1I0 1W0 1F0"))
	require.ErrorIs(t, err, waitgraph.ErrDeadlock)
	require.ErrorContains(t, err, "rank 0 is at action 1, 0I0, and waits for 1I0 of rank 1; rank 1 is at action 0, 1I0, and waits for 2I0 of rank 0;")
}

// All of several independent faults are reported.
func TestCheckReportsFaultsOfSeveralRanks(t *testing.T) {
	err := check.Plan(plantest.FromText(t, "0 1 2 3", 2,
		"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0B1",
		"1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1 1SEND_B1",
		"2RECV_F1 2RECV_F0 2F0 2SEND_F0 2F1 2SEND_F1 2RECV_B0 2B0 2SEND_B0 2RECV_B1 2B1 2SEND_B1 2UNSHARD",
		"3F0 3RECV_F0 3B0 3SEND_B0 3RECV_F1 3F1 3B1 3SEND_B1 3RECV_F1"))
	require.Equal(t, []check.Code{check.Twice, check.Order, check.Pairing, check.Sharding}, plantest.CodesOf(err), "%v", err)

	err = check.Plan(plantest.FromText(t, "0 1 2 3", 2,
		"0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1 2W1", "3F0 3B0 3F1 3B1"))
	require.Equal(t, []check.Code{check.Mixed, check.Deadlock}, plantest.CodesOf(err), "%v", err)
}

// All independent waiting cycles are reported; ranks that only wait for one of them are not.
func TestEveryCircleIsReported(t *testing.T) {
	p := plantest.FromText(t, "0 1 2 3 4", 2,
		"0F0 0F1", "1F0 1F1", "2F0 2F1", "3F0 3F1", "4F0 4F1")
	p.Mode = schedule.ForwardOnly
	require.NoError(t, check.Plan(p))

	p = plantest.FromText(t, "0 1 0 1 2 3 2 3", 2, "", "", "", "")
	p.Mode, p.Placement.Copies = schedule.ForwardOnly, 2
	p.Programs = plantest.FromText(t, "0 1 0 1 2 3 2 3", 2, "2F0 0F0", "1F0 3F0", "6F1 4F1", "5F1 7F1").Programs
	err := check.Plan(p)
	require.ErrorContains(t, err, "Ranks 0 and 1 wait for each other: rank 0 is at action 0, 2F0, and waits for 1F0 of rank 1;"+
		" rank 1 is at action 0, 1F0, and waits for 0F0 of rank 0; put 0F0, with the actions that it needs, before 2F0 on rank 0.")
	require.ErrorContains(t, err, "Ranks 2 and 3 wait for each other: rank 2 is at action 0, 6F1, and waits for 5F1 of rank 3;")
	invalid, _ := errors.AsType[*check.Error](err)
	circles := 0
	for _, f := range invalid.Faults {
		if f.Code == check.Deadlock {
			circles++
			require.Len(t, f.Cycle, 2)
			require.Equal(t, f.Text, waitgraph.DescribeCycle(f.Cycle))
		}
	}
	require.Equal(t, 2, circles)
}

// A plan without the program of one rank has one fault, and none for the actions that depend on its
// stages.
func TestStagesThatRunNowhere(t *testing.T) {
	placement := schedule.Looped(4, 8)
	plan, err := schedule.Interleaved(schedule.Params{Placement: placement, Microbatches: 8})
	require.NoError(t, err)
	plan.Programs[2] = nil
	err = check.Plan(plan)
	invalid, ok := errors.AsType[*check.Error](err)
	require.True(t, ok)
	require.Len(t, invalid.Faults, 1)
	require.Equal(t, check.Missing, invalid.Faults[0].Code)
	require.Equal(t, "These stages have no actions: 2, 6. Add the programs of their ranks, or correct the number of stages.", invalid.Faults[0].Text)
}
