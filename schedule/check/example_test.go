package check_test

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// The error of Plan lists the faults of a plan.
func ExamplePlan() {
	plan, _ := schedule.BreadthFirst(schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 8})
	program := plan.Programs[0]
	program[1], program[2] = program[2], program[1]
	fmt.Println(check.Plan(plan))
	// Output:
	// schedule: plan "breadth-first" is invalid: Rank 0, action 8: 1B0 runs before 1F0, which saves the state it takes; move 1F0 before it.
}
