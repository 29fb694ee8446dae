package lower_test

import (
	"fmt"
	"os"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// A rule generates a plan, and Prepare lowers it. On one rank, that adds the drops.
func Example() {
	plan, err := schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 1_000_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	const tokens, labels = 1 << 0, 1 << 1
	facts := make([]schedule.StageInfo, 2)
	facts[0].Reads[schedule.F] = tokens
	facts[1].Reads[schedule.F] = labels
	facts[1].Reads[schedule.B] = labels
	plan, err = lower.Prepare(plan, lower.Passes{StageInfo: facts, Parts: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := plan.WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// weir plan 1
	// name "depth-first"
	// mode training
	// ranks 1
	// stages 2
	// microbatches 1000000
	// placement 0 0
	// frozen none
	//
	// stage 0: window=1 facts=- reads=F:0 drops=F:0
	// stage 1: window=1 facts=- reads=F:1;B:1 drops=B:1
	//
	// rank 0: entries=1
	// x 1000000 +1: 0F0~p 1F0~io 1B0~ps 0B0~gsr
}
