package batchctx_test

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// A call of the microbatch that cannot succeed ends the stage's call and the step, and everything
// is released.
func Example() {
	type number = *float64
	var d stages.Decl[number]
	x, saved, sum := d.Part("x"), d.Slot("saved"), d.Loss("sum")
	stage := d.Stage("square",
		func(_ context.Context, mb batchctx.Microbatch[number], _, _ []number) error {
			h := mb.Part(x)
			mb.Loss(sum, *h**h, 1)
			mb.Save(saved, mb.Retain(h))
			return nil
		},
		func(_ context.Context, mb batchctx.Microbatch[number], _, _ []number) error {
			fmt.Println("saved:", *mb.Take(saved))
			fmt.Println("saved:", *mb.Take(saved)) // a second Take fails
			return nil
		})
	run, _ := runner.New(runner.Config[number]{
		Stages: []stages.Stage[number]{stage},
		Spaces: runner.Spaces[number](memory.NewGCSpace[number](nil, func(number) int64 { return 8 })),
		Losses: []loss.Def{{Name: "sum", Reduction: loss.Mean, Objective: true}},
	})
	_, err := run.Step(context.Background(), 1, runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
		x := 3.0
		e.Put("x", &x)
		return nil
	}))
	fmt.Println(err)
	// Output:
	// saved: 3
	// runner: rank 0 action 0B0 (stage 0 square, microbatch 0): batchctx: the saved state was taken already: slot "saved": take once and keep the handle for the call
}
