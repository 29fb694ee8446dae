package runner_test

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// Two ranks have one stage each: the first doubles its input, and the second records it as its
// loss. Numbers cross ranks as copies; the stream is read once for both.
func ExampleConfig_ranks() {
	type mb = batchctx.Microbatch[*float64]
	x := []stages.Port{{Name: "x"}}
	chain := []stages.Stage[*float64]{
		&stages.Func[*float64]{
			Declares: stages.Spec{Name: "double", Reads: []stages.Read{{Part: "number"}}, Outputs: x},
			ForwardFunc: func(_ context.Context, mb mb, _, out []*float64) error {
				number := mb.Part(1)
				doubled := 2 * *number
				out[0] = &doubled
				return nil
			},
		},
		&stages.Func[*float64]{
			Declares: stages.Spec{Name: "score", Inputs: x, Losses: []string{"loss"}},
			ForwardFunc: func(_ context.Context, mb mb, in, _ []*float64) error {
				mb.Loss(1, *in[0], 1)
				return nil
			},
		},
	}
	size := func(*float64) int64 { return 8 }
	run, err := runner.New(runner.Config[*float64]{
		Stages: chain, Schedule: "1f1b",
		Spaces: runner.Spaces[*float64](memory.NewGCSpace(nil, size), memory.NewGCSpace(nil, size)),
		Topology: runner.Topology[*float64]{Capacity: 1, Copy: func(_, _ int, h *float64) (*float64, error) {
			number := *h
			return &number, nil
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer run.Close()

	last := 0.0
	numbers := runner.Stream(
		func(context.Context) (float64, error) { last++; return last, nil },
		func(number float64, entry batchctx.Entry[*float64]) error { entry.Put("number", &number); return nil })
	result, err := run.Evaluate(context.Background(), 4, numbers)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("mean", result.Loss("loss"), "over", result.Microbatches, "microbatches")
	for rank, of := range result.Ranks {
		fmt.Println("rank", rank, "ran", of.Actions, "actions")
	}
	// Output:
	// mean 5 over 4 microbatches
	// rank 0 ran 12 actions
	// rank 1 ran 8 actions
}
