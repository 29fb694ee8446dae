package waitgraph_test

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// Each of two ranks waits for a gradient that the other one sends later.
func ExampleFindCycle() {
	cycle := waitgraph.FindCycle([]waitgraph.Waiting{
		{Rank: 1, Position: 4, Action: schedule.NewAction(schedule.RecvF, 1, 1), For: schedule.NewAction(schedule.SendF, 0, 1), ForRank: 0},
		{Rank: 0, Position: 2, Action: schedule.NewAction(schedule.RecvB, 0, 0), For: schedule.NewAction(schedule.SendB, 1, 0), ForRank: 1},
		{Rank: 2, Position: 0, Action: schedule.NewAction(schedule.RecvF, 2, 0), For: schedule.NewAction(schedule.SendF, 1, 0), ForRank: 1},
	})
	fmt.Println(waitgraph.IsCycle(cycle), len(cycle), "ranks")
	for _, w := range cycle {
		fmt.Printf("rank %d waits for %v of rank %d\n", w.Rank, w.For, w.ForRank)
	}
	// Output:
	// true 2 ranks
	// rank 0 waits for 1SEND_B0 of rank 1
	// rank 1 waits for 0SEND_F1 of rank 0
}
