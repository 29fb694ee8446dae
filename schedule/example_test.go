package schedule_test

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
)

// The actions of a segmented plan, one after the other.
func ExamplePlan_All() {
	plan, _ := schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 3, Group: 2})
	for action := range plan.All(0) {
		fmt.Print(action, " ")
	}
	// Output:
	// 0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1 0F2 1F2 1B2 0B2
}
