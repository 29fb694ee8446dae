package choose_test

import (
	"fmt"

	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Four ranks with two stages each and memory for three microbatches.
func Example() {
	choice, err := choose.Choose(choose.Request{
		Ranks: 4, Stages: 8, Microbatches: 32, Capacity: 1, Memory: 6,
		Costs: &simulate.Costs{Stages: []simulate.StageCosts{{F: 10, I: 10, W: 10, Saved: 1}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	best := choice.Best
	fmt.Printf("%s: makespan %d, bubble %.3f, peak %d\n", best.Name(), best.Report.Makespan, best.Report.BubbleMakespan(), best.Peak)
	// Output: v-half: makespan 1970, bubble 0.025, peak 6
}
