package diagnosis_test

import (
	"fmt"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/waitgraph"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/diagnosis"
)

// Rank 1 waits for a tensor, and rank 0 computes.
func Example() {
	ranks := []transport.RankStatus{
		{Step: 3, Waiting: waitgraph.Waiting{Rank: 0, Action: schedule.NewAction(schedule.F, 0, 0)}},
		{Step: 3, Waits: true, Since: 7 * time.Second, Waiting: waitgraph.Waiting{
			Rank: 1, Action: schedule.NewAction(schedule.RecvF, 1, 0), ForRank: 0, For: schedule.NewAction(schedule.F, 0, 0),
		}},
	}
	fmt.Println(diagnosis.Of(ranks))
	// Output:
	// rank 0 waits for none; 1 other waits for it (certain)
	// rank 0 (step 3) runs 0F0; rank 1 has waited 7s for it
}
