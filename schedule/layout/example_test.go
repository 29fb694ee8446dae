package layout_test

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// The memory of a step of 1F1B on two ranks, from figures.
func ExampleMake() {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	profile := layout.FromFigures(plan, []layout.Figures{{Stage: "block", Output: 1024, Gradient: 1024, Input: 8192, Backward: 4096}})
	if plan, err = lower.Prepare(plan, lower.Passes{StageInfo: profile.StageInfo, Capacity: 1}); err != nil {
		fmt.Println(err)
		return
	}
	made, err := layout.Make(context.Background(), plan, profile, layout.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for rank, r := range made.Ranks {
		fmt.Printf("rank %d: %d bytes, gap %v; at the peak %v\n", rank, r.Height, r.Gap(), r.Peak.Owners[0])
	}
	// Output:
	// rank 0: 23552 bytes, gap 0; at the peak stage 0 (block): saved for I (saved) 16384 bytes of 2 microbatches (0 to 1)
	// rank 1: 14336 bytes, gap 0; at the peak stage 1 (block): saved for I (saved) 8192 bytes of microbatch 1
}
