package simulate_test

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Run predicts a step of 1F1B on four ranks. A tick of its times is a microsecond.
func ExampleRun() {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 1_000_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	costs := &simulate.Costs{
		Unit: "ms", Scale: 1000, Latency: 601,
		Stages: []simulate.StageCosts{{F: 18522, I: 18086, W: 9337, Saved: 1 << 30}},
	}
	report, err := simulate.Run(plan, costs, schedule.Unlimited)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f s, bubble %.4f\n", costs.Units(report.Makespan)/1000, report.BubbleMakespan())
	for rank, r := range report.Ranks {
		fmt.Printf("rank %d: %d GiB at %v\n", rank, r.Peak>>30, r.PeakAt)
	}
	// Output:
	// 46846.640 s, bubble 0.0192
	// rank 0: 4 GiB at 0F3
	// rank 1: 3 GiB at 1F2
	// rank 2: 2 GiB at 2F1
	// rank 3: 1 GiB at 3F0
}
