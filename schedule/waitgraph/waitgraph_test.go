package waitgraph_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// waits returns a Waiting of a rank whose next action is at position 10·rank.
func waits(t require.TestingT, rank int, action, other string, of int) waitgraph.Waiting {
	a, err := schedule.ParseAction(action)
	require.NoError(t, err)
	b, err := schedule.ParseAction(other)
	require.NoError(t, err)
	return waitgraph.Waiting{Rank: rank, Position: int64(10 * rank), Action: a, For: b, ForRank: of}
}

func TestDescribeCycle(t *testing.T) {
	joined := waits(t, 0, "0F1", "1B0", 1)
	joined.With = schedule.NewAction(schedule.B, 0, 0)
	for _, test := range []struct {
		name    string
		waiting []waitgraph.Waiting
		ranks   []int
		text    string
	}{
		{"nobody", nil, nil, ""},
		{"two", []waitgraph.Waiting{waits(t, 1, "1RECV_F1", "0SEND_F1", 0), waits(t, 0, "0RECV_B0", "1SEND_B0", 1)}, []int{0, 1},
			"Ranks 0 and 1 wait for each other: rank 0 is at action 0, 0RECV_B0, and waits for 1SEND_B0 of rank 1;" +
				" rank 1 is at action 10, 1RECV_F1, and waits for 0SEND_F1 of rank 0;" +
				" put 0SEND_F1, with the actions that it needs, before 0RECV_B0 on rank 0."},
		{"three, and one that waits for them", []waitgraph.Waiting{
			waits(t, 3, "3B0", "4B0", 1), waits(t, 1, "1F2", "0F2", 7), waits(t, 7, "0B1", "5B1", 2), waits(t, 2, "5F0", "1F0", 1)}, []int{1, 7, 2},
			"Ranks 1, 7 and 2 wait for each other: rank 1 is at action 10, 1F2, and waits for 0F2 of rank 7;" +
				" rank 7 is at action 70, 0B1, and waits for 5B1 of rank 2;" +
				" rank 2 is at action 20, 5F0, and waits for 1F0 of rank 1;" +
				" put 1F0, with the actions that it needs, before 1F2 on rank 1."},
		{"only one of the ranks can give way", []waitgraph.Waiting{waits(t, 0, "0F0", "1F0", 1), waits(t, 1, "1B0", "0B0", 0)}, []int{0, 1},
			"Ranks 0 and 1 wait for each other: rank 0 is at action 0, 0F0, and waits for 1F0 of rank 1;" +
				" rank 1 is at action 10, 1B0, and waits for 0B0 of rank 0; put 1F0, with the actions that it needs, before 1B0 on rank 1."},
		{"none of them can", []waitgraph.Waiting{waits(t, 0, "0F0", "1B0", 1), waits(t, 1, "1F0", "0B0", 0)}, []int{0, 1},
			"Ranks 0 and 1 wait for each other: rank 0 is at action 0, 0F0, and waits for 1B0 of rank 1;" +
				" rank 1 is at action 10, 1F0, and waits for 0B0 of rank 0; put the awaited action before the action at which its rank waits."},
		{"full links", []waitgraph.Waiting{waits(t, 0, "0SEND_F1", "1RECV_F0", 1), waits(t, 1, "1SEND_B4", "0RECV_B3", 0)}, []int{0, 1},
			"Ranks 0 and 1 wait for each other: rank 0 is at action 0, 0SEND_F1, and waits for 1RECV_F0 of rank 1;" +
				" rank 1 is at action 10, 1SEND_B4, and waits for 0RECV_B3 of rank 0;" +
				" put 0RECV_B3, with the actions that it needs, before 0SEND_F1 on rank 0, or increase the link capacity."},
		{"a joined pair", []waitgraph.Waiting{joined, waits(t, 1, "1F1", "0F1", 0)}, []int{0, 1},
			"Ranks 0 and 1 wait for each other: rank 0 is at action 0, 0F1 joined with 0B0, and waits for 1B0 of rank 1;" +
				" rank 1 is at action 10, 1F1, and waits for 0F1 of rank 0;" +
				" remove the join of 0F1 and 0B0, because a joined pair starts only when both actions can run."},
		{"itself", []waitgraph.Waiting{waits(t, 4, "0WAIT_F0", "1RECV_F0", 4)}, []int{4},
			"Rank 4 waits for itself: rank 4 is at action 40, 0WAIT_F0, and waits for 1RECV_F0 of rank 4; put 1RECV_F0, with the actions that it needs, before 0WAIT_F0 on rank 4."},
		{"a rank that has ended", []waitgraph.Waiting{waits(t, 2, "2F0", "1F0", 1), waits(t, 1, "1RECV_F0", "0SEND_F0", 0)}, []int{1},
			"Rank 1 waits for an action that never runs: rank 1 is at action 10, 1RECV_F0, and waits for 0SEND_F0 of rank 0;" +
				" rank 0 ends without running it; add 0SEND_F0 to its program, or remove the action that waits for it."},
		{"a cycle behind a rank that has ended", []waitgraph.Waiting{
			waits(t, 1, "1RECV_F0", "0SEND_F0", 0), waits(t, 2, "2F0", "3B0", 3), waits(t, 3, "3F1", "2F1", 2)}, []int{2, 3},
			"Ranks 2 and 3 wait for each other: rank 2 is at action 20, 2F0, and waits for 3B0 of rank 3;" +
				" rank 3 is at action 30, 3F1, and waits for 2F1 of rank 2; put 2F1, with the actions that it needs, before 2F0 on rank 2."},
	} {
		t.Run(test.name, func(t *testing.T) {
			cycle := waitgraph.FindCycle(test.waiting)
			var ranks []int
			for _, w := range cycle {
				ranks = append(ranks, w.Rank)
			}
			require.Equal(t, test.ranks, ranks)
			require.Equal(t, test.text, waitgraph.DescribeCycle(cycle))
		})
	}
}

// A long cycle names only some of its ranks.
func TestDescribeCycleOfManyRanks(t *testing.T) {
	var waiting []waitgraph.Waiting
	for rank := range 70 {
		waiting = append(waiting, waits(t, rank, fmt.Sprintf("%dB0", rank), fmt.Sprintf("%dB0", (rank+1)%70), (rank+1)%70))
	}
	cycle := waitgraph.FindCycle(waiting)
	require.Equal(t, waiting, cycle)
	text := waitgraph.DescribeCycle(cycle)
	require.Contains(t, text, "Ranks 0, 1, 2,")
	require.Contains(t, text, "63, ... and 69 wait for each other:")
	require.Contains(t, text, " rank 63 is at action 630, 63B0, and waits for 64B0 of rank 64; and so on for 6 more ranks;")
	require.Equal(t, 64, strings.Count(text, " is at action "))
}
