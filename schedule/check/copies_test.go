package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// twoCopies returns a plan for two copies of a model of two stages. The first half of the
// microbatches runs through stages 0 and 1, the second half through stages 2 and 3, which are
// placed in the opposite order.
func twoCopies(t *testing.T, microbatches int, lists ...string) *schedule.Plan {
	p := plantest.FromText(t, "0 1 1 0", microbatches, lists...)
	p.Placement.Copies = 2
	return p
}

func TestCheckOfCopies(t *testing.T) {
	const first, second = "0F0 0F1 3F2 0B0 3B2 0B1", "2F2 1F0 1B0 1F1 1B1 2B2"
	require.NoError(t, check.Plan(twoCopies(t, 3, first, second)))
	for _, test := range []struct {
		name          string
		first, second string
		codes         []check.Code
		text          string
	}{
		{"a microbatch of the other copy", strings.Replace(first, "0F1", "0F2", 1), second, []check.Code{check.UnknownMicrobatch},
			"Rank 0, action 1: 0F2 belongs to a microbatch of another copy of the model; this copy runs microbatches 0 to 1."},
		{"a microbatch too many", first + " 3F3", second, []check.Code{check.UnknownMicrobatch},
			"Rank 0, action 6: 3F3 belongs to an unknown microbatch; microbatches are 0 to 2."},
		{"a missing forward", first, strings.Replace(second, "2F2 ", "", 1), []check.Code{check.Missing},
			"Rank 1 never runs 2F2; add it."},
		{"no edge between copies", "0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F2 3F2 3B2 3SEND_B2 0RECV_B0 0B0 0RECV_B1 0B1",
			"2F2 2SEND_F2 1RECV_F0 1F0 1SEND_F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 2RECV_B2 2B2", []check.Code{check.Unexpected},
			"Rank 1, action 4: 1SEND_F0 must not be in this plan: no rank boundary follows this stage."},
		{"a wrong order in one copy", strings.Replace(first, "3F2 0B0 3B2", "3B2 0B0 3F2", 1), second, []check.Code{check.Order},
			"Rank 0, action 2: 3B2 runs before 3F2, which saves the state it takes; move 3F2 before it."},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check.Plan(twoCopies(t, 3, test.first, test.second))
			plantest.RequireCodes(t, err, test.codes...)
			require.ErrorContains(t, err, test.text)
		})
	}

	p := twoCopies(t, 3, first, second)
	p.Placement.Copies = 3
	require.ErrorContains(t, check.Plan(p), "The placement has 3 copies of a model in 4 stages; give every copy the same number of stages.")
	p = twoCopies(t, 3, first, second)
	p.Frozen = []bool{true, false, false, false}
	require.ErrorContains(t, check.Plan(p), "Stage 2 is a copy of stage 0, and only one of them is frozen; freeze both or neither.")
}

// The declared number of batch entries is per copy, because the microbatches of the copies are far
// apart.
func TestEntriesOfCopies(t *testing.T) {
	p := twoCopies(t, 8, "0F0 3F4 0B0 3B4 0F1 3F5 0B1 3B5 0F2 3F6 0B2 3B6 0F3 3F7 0B3 3B7",
		"2F4 1F0 1B0 2B4 2F5 1F1 1B1 2B5 2F6 1F2 1B2 2B6 2F7 1F3 1B3 2B7")
	facts := make([]schedule.StageInfo, 4)
	for s := range facts {
		facts[s].Reads[schedule.F] = 1 << (s % 2)
		facts[s].Reads[schedule.B] = 1 << (s % 2)
	}
	marked, err := lower.Lifetimes(p, facts, 2)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, marked.EntryWindows)
	require.NoError(t, check.Plan(marked))
	marked.EntryWindows = []int{1, 0}
	err = check.Plan(marked)
	plantest.RequireCodes(t, err, check.EntriesExceeded)
	require.ErrorContains(t, err, "Rank 1, action 0: 2F4 holds 1 consecutive batch entries, but the rank declares 0; declare 1.")
}

func TestCheckOfSlices(t *testing.T) {
	plan := func(program string) *schedule.Plan {
		p := plantest.FromText(t, "0", 5, program) // two sequences of two slices, and one slice of a third
		p.Slices = 2
		return p
	}
	require.NoError(t, check.Plan(plan("0F0 0F1 0F2 0F3 0F4 0B1 0B0 0B3 0B2 0B4")))
	require.NoError(t, check.Plan(plan("0F4 0B4 0F2 0F0 0F1 0B1 0F3 0I3 0I2 0B0 0W2 0W3")))
	for _, test := range []struct{ program, text string }{
		{"0F0 0F1 0F3 0F2 0F4 0B1 0B0 0B3 0B2 0B4", "Rank 0, action 2: 0F3 runs before 0F2, the slice before it; move 0F2 before it."},
		{"0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B3 0B2 0B4", "Rank 0, action 5: 0B0 runs before 0B1, the slice after it; move 0B1 before it."},
		{"0F0 0F1 0F2 0F3 0F4 0B1 0B0 0I2 0I3 0W2 0W3 0B4", "Rank 0, action 7: 0I2 runs before 0I3, the slice after it; move 0I3 before it."},
	} {
		err := check.Plan(plan(test.program))
		plantest.RequireCodes(t, err, check.Order)
		require.ErrorContains(t, err, test.text)
	}
	err := check.Plan(plan("0F0& 0F1 0F2 0F3 0F4 0B1 0B0 0B3 0B2 0B4"))
	plantest.RequireCodes(t, err, check.BadJoin)
	require.ErrorContains(t, err, "0F0 is joined with 0F1; a join needs two computations that do not depend on each other.")
	p := plan("0F0 0F1 0F2 0F3 0F4 0B1 0B0 0B3 0B2 0B4")
	p.Slices = -1
	require.ErrorContains(t, check.Plan(p), "A sequence has -1 slices; use 1 or more, or 0 for 1.")
}

// If a stride is a whole number of sequences, all repeats are alike and the check visits three of them.
// Otherwise it visits every repeat.
func TestProofOfSlices(t *testing.T) {
	plan := func(stride, repeat int, body ...schedule.Action) *schedule.Plan {
		return &schedule.Plan{Name: "sliced", Placement: schedule.Looped(1, 1), Microbatches: stride * repeat, Slices: 3, Mode: schedule.ForwardOnly,
			Programs: [][]schedule.Segment{{{Body: body, Repeat: repeat, Stride: stride}}}}
	}
	f := func(mb int) schedule.Action { return schedule.NewAction(schedule.F, 0, mb) }
	for _, test := range []struct {
		p       *schedule.Plan
		valid   bool
		visited int64
	}{
		{plan(3, 1_000, f(0), f(1), f(2)), true, 9},
		{plan(1, 3_000, f(0)), true, 3_000},
		{plan(2, 1_500, f(0), f(1)), true, 3_000},
		{plan(3, 1_000, f(0), f(2), f(1)), false, 9},
		{plan(2, 1_500, f(1), f(0)), false, 3_000},
	} {
		proof, err := check.Prove(test.p, schedule.Unlimited)
		require.Equal(t, test.valid, err == nil, fmt.Sprint(err))
		require.Equal(t, test.visited, proof.Visited)
		require.Equal(t, plantest.CodesOf(check.Plan(plantest.Expand(test.p))), plantest.CodesOf(err))
	}
}

// A stage holds a sent buffer until the wait for its send. A plan declares, by stage, the range of microbatches with such
// buffers.
func TestOutgoing(t *testing.T) {
	p := plantest.FromText(t, "0 1", 3, "0F0 0SEND_F0 0F1 0SEND_F1 0WAIT_F0 0RECV_B0 0B0 0WAIT_F1 0F2 0SEND_F2 0RECV_B1 0B1 0RECV_B2 0B2 0WAIT_F2",
		"1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1WAIT_B0 1WAIT_B1 1RECV_F2 1F2 1B2 1SEND_B2 1WAIT_B2")
	marked, err := lower.Lifetimes(p, make([]schedule.StageInfo, 2), 0)
	require.NoError(t, err)
	require.Equal(t, []int{2, 2}, marked.SendWindows)
	require.NoError(t, check.Plan(marked))
	marked.SendWindows = []int{2, 1}
	err = check.Plan(marked)
	plantest.RequireCodes(t, err, check.OutgoingExceeded)
	require.ErrorContains(t, err, "Rank 1, action 6: 1B1 has 2 consecutive microbatches of stage 1 waiting to be sent or in flight, but the stage declares 1; declare 2.")
	marked.SendWindows = []int{1, 2}
	require.ErrorContains(t, check.Plan(marked), "Rank 0, action 2: 0F1 has 2 consecutive microbatches of stage 0 waiting to be sent or in flight,")
	marked.SendWindows = []int{2}
	require.ErrorContains(t, check.Plan(marked), "SendWindows has 1 entries but the placement requires 2; run the lifetime pass again.")
}

// The copies of a model take the microbatches of a batch in turn, each once.
func TestItemsOfCopies(t *testing.T) {
	p := &schedule.Plan{Placement: schedule.Bidirectional(3), Microbatches: 7}
	var items []int
	for mb := range p.Microbatches {
		items = append(items, p.BatchIndex(mb))
	}
	require.Equal(t, []int{0, 2, 4, 6, 1, 3, 5}, items)
	for copies := range 5 {
		for microbatches := range 20 {
			p := &schedule.Plan{Placement: schedule.Placement{Ranks: 1, Rank: make([]int, 2*max(copies, 1)), Copies: copies}, Microbatches: microbatches}
			taken := make([]bool, microbatches)
			for mb := range microbatches {
				item := p.BatchIndex(mb)
				require.False(t, taken[item], "item %d of %d, %d copies", item, microbatches, copies)
				taken[item] = true
				require.Equal(t, mb, p.MicrobatchAt(item))
			}
		}
	}
}
