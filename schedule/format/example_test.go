package format_test

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
)

// Example reads and checks a file, and shows each fault at its location.
func Example() {
	const csv = "0F0,0F1,0B0,0B1\n1F0,1B0,,1B1,1F1\n"
	file, err := format.Read(strings.NewReader(csv), format.Options{Name: "plan.csv"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = check.Plan(file.Plan)
	if invalid, ok := errors.AsType[*check.Error](err); ok {
		for _, fault := range invalid.Faults {
			line, column := file.LineColumn(fault.Rank, fault.Position)
			fmt.Printf("%s:%d:%d: %s\n", file.Name, line, column, fault.Text)
		}
	}
	// Output:
	// plan.csv:2:10: Rank 1, action 2: 1B1 runs before 1F1, which saves the state it takes; move 1F1 before it.
}

// ExampleWrite writes the same plan in three forms.
func ExampleWrite() {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, form := range []format.Format{format.Compute, format.Order, format.JSON} {
		if err := format.Write(os.Stdout, plan, form); err != nil {
			fmt.Println(err)
		}
		fmt.Println()
	}
	// Output:
	// 0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3
	// 1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3
	//
	// 1 1 -1 1 -1 1 -1 -1
	// 1 -1 1 -1 1 -1 1 -1
	//
	// {
	//   "schema": 2,
	//   "name": "1f1b",
	//   "mode": "training",
	//   "ranks": 2,
	//   "placement": [0, 1],
	//   "microbatches": 4,
	//   "programs": [
	//     [
	//       {"repeat": 1, "stride": 0, "actions": [["F",0,0]]},
	//       {"repeat": 3, "stride": 1, "actions": [["F",0,1], ["B",0,0]]},
	//       {"repeat": 1, "stride": 0, "actions": [["B",0,3]]}
	//     ],
	//     [
	//       {"repeat": 4, "stride": 1, "actions": [["F",1,0], ["B",1,0]]}
	//     ]
	//   ]
	// }
}
