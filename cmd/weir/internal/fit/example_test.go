package fit_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/units"
)

// A model of eight billion parameters, on four ranks.
func ExamplePredict() {
	config, err := fit.Read(strings.NewReader(configs["Llama-3-8B"]), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	setup := fit.Setup{Sequence: 4096, Data: 8, Zero: 1, Recompute: fit.Recompute{All: true}}
	out, err := fit.Predict(context.Background(), fit.Request{Model: &config.Model, Setup: setup, Plan: plan, Capacity: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(units.Count(config.Model.Parameters(1, false)), "parameters")
	for rank, r := range out.Ranks {
		fmt.Printf("rank %d: %s at %s, %s of them static\n", rank, units.Size(r.Total()), r.Peak, units.Size(r.Static.Total()))
	}
	// Output:
	// 8,030,261,248 parameters
	// rank 0: 17.7 GiB at 0B0, 15.9 GiB of them static
	// rank 1: 13.8 GiB at 1B0, 12.2 GiB of them static
	// rank 2: 13.5 GiB at 2B0, 12.2 GiB of them static
	// rank 3: 19.2 GiB at 3F2, 15.9 GiB of them static
}
