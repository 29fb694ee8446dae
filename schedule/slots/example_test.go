package slots_test

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/slots"
)

// A rank of 1F1B receives a million gradients in one buffer, and keeps the saved state in as many buffers as
// microbatches are in flight.
func Example() {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 1_000_000})
	if err != nil {
		panic(err)
	}
	if plan, err = lower.Transfers(plan, 0); err != nil {
		panic(err)
	}
	table, err := slots.Make(slots.Config{}, plan)
	if err != nil {
		panic(err)
	}
	for _, a := range table.Variants[0].Assignments[:2] {
		fmt.Println(table.Pools[a.Pool].Tensor, a.Slots)
		for _, r := range a.Runs {
			fmt.Println(" ", r.Microbatch, r.Stride, r.Count, r.Slots)
		}
	}
	// Output:
	// received 1
	//   0 1 1000000 [0]
	// saved 2
	//   0 1 1000000 [0 1]
}
