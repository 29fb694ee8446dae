package runner_test

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// One stage without parameters, and three microbatches of different weights: the mean is
// weighted, and every action prints its drops.
func Example() {
	r, err := runner.New(runner.Config[*float64]{
		Stages: []stages.Stage[*float64]{&stages.Func[*float64]{
			Declares: stages.Spec{Name: "score", Reads: []stages.Read{{Part: "sum"}}, Losses: []string{"loss"}},
			ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[*float64], _, _ []*float64) error {
				sum := mb.Part(1)
				mb.Loss(1, *sum, float64(mb.Index()+1))
				return nil
			},
		}},
		Spaces: runner.Spaces[*float64](memory.NewGCSpace(nil, func(*float64) int64 { return 8 })),

		Losses: []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
		Hooks: runner.Hooks{
			Action: func(_ int, a schedule.Action) { fmt.Printf("%v~%v\n", a, a.Drop()) },
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	source := runner.Indexed(func(_ context.Context, e batchctx.Entry[*float64]) error {
		sum := 4.0
		e.Put("sum", &sum)
		return nil
	})
	result, err := r.Step(context.Background(), 3, source)
	if err != nil {
		fmt.Println(err)
		return
	}
	value := result.Loss("loss")
	fmt.Printf("%v: loss %v over %d microbatches\n", result.Outcome, value, result.Microbatches)
	// Output:
	// 0F0~po
	// 0B0~sr
	// 0F1~po
	// 0B1~sr
	// 0F2~po
	// 0B2~sr
	// stepped: loss 2 over 3 microbatches
}
