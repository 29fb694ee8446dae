package stages_test

import (
	"context"
	"fmt"
	"log"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// The handle of the examples is a pointer to one number.
type (
	number     = *float64
	microbatch = batchctx.Microbatch[number]
)

func newNumber(v float64) number { return &v }

// times returns y = w·x. Its forward saves x, and its backward takes it.
func times(name string, w float64, grad number) *stages.Func[number] {
	wire := []stages.Port{{Name: "x"}}
	return &stages.Func[number]{
		Declares:   stages.Spec{Name: name, Inputs: wire, Outputs: wire, Slots: []string{"x"}},
		Parameters: []batchctx.Use[number]{{Name: name, Grad: grad}},
		ForwardFunc: func(_ context.Context, mb microbatch, in, out []number) error {
			out[0] = newNumber(w * *in[0])
			mb.Save(1, mb.Retain(in[0]))
			return nil
		},
		BackwardFunc: func(_ context.Context, mb microbatch, gradOut, gradIn []number) error {
			x := mb.Take(1)
			if gradIn != nil {
				gradIn[0] = newNumber(w * *gradOut[0])
			}
			if grad, trains := mb.Grad(1); trains {
				*grad += *x * *gradOut[0]
			}
			return nil
		},
	}
}

// numbers reads the entry part "x", and identity records it as the loss.
var (
	numbers = &stages.Func[number]{
		Declares: stages.Spec{Name: "numbers", Reads: []stages.Read{{Part: "x"}}, Outputs: []stages.Port{{Name: "x"}}},
		ForwardFunc: func(_ context.Context, mb microbatch, _, out []number) error {
			x := mb.Part(1)
			out[0] = mb.Retain(x)
			return nil
		},
	}
	identity = &stages.Func[number]{
		Declares: stages.Spec{Name: "loss", Inputs: []stages.Port{{Name: "x"}}, Losses: []string{"x"}},
		ForwardFunc: func(_ context.Context, mb microbatch, in, _ []number) error {
			mb.Loss(1, *in[0], 1)
			return nil
		},
		BackwardFunc: func(_ context.Context, mb microbatch, _, gradIn []number) error {
			seed := mb.LossSeed(1)
			gradIn[0] = newNumber(float64(seed))
			return nil
		},
	}
)

// calculator implements the runner's operations on gradients at the end of a step.
type calculator struct{}

func (calculator) Zero(g number) error                  { *g = 0; return nil }
func (calculator) Add(dst, src number) error            { *dst += *src; return nil }
func (calculator) SumSquares(g number) (float64, error) { return *g * *g, nil }

// run trains a chain of stages on the numbers 1 to 4 and prints the loss.
func run(chain ...stages.Stage[number]) {
	r, err := runner.New(runner.Config[number]{
		Stages: chain, Spaces: runner.Spaces[number](memory.NewGCSpace[number](nil, nil)), Gradients: calculator{},
		Losses: []loss.Def{{Name: "x", Reduction: loss.Mean, Objective: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := r.Step(context.Background(), 4, runner.Indexed(func(_ context.Context, entry batchctx.Entry[number]) error {
		entry.Put("x", newNumber(float64(1+entry.Index())))
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("loss", result.Losses[0].Value)
}

// Stages made of functions, run one microbatch after the other.
func ExampleFunc() {
	three, five := newNumber(0), newNumber(0)
	run(numbers, times("three", 3, three), times("five", 5, five), identity)
	fmt.Println("gradients", *three, *five)
	// Output:
	// loss 37.5
	// gradients 50 30
}

func ExampleSequential() {
	three, five := newNumber(0), newNumber(0)
	both, err := stages.Sequential[number]("both", times("three", 3, three), times("five", 5, five))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(both.Spec().Slots), "slots,", len(stages.Params(both)), "parameters")
	run(numbers, both, identity)
	fmt.Println("gradients", *three, *five)
	// Output:
	// 2 slots, 2 parameters
	// loss 37.5
	// gradients 50 30
}

// Under Recompute the stage keeps only its inputs, and runs its forward again before its
// backward. The numbers are the same.
func ExampleRecompute() {
	three := newNumber(0)
	inner := times("three", 3, three)
	forward := inner.ForwardFunc
	passes := map[batchctx.Pass]int{}
	inner.ForwardFunc = func(ctx context.Context, mb microbatch, in, out []number) error {
		passes[mb.Pass()]++
		return forward(ctx, mb, in, out)
	}
	run(numbers, stages.Recompute[number](inner), identity)
	fmt.Println("gradient", *three, "passes", passes)
	// Output:
	// loss 7.5
	// gradient 10 passes map[train:4 recompute:4]
}

func ExampleFreeze() {
	three, five := newNumber(0), newNumber(0)
	run(numbers, times("three", 3, three), stages.Freeze[number](times("five", 5, five)), identity)
	fmt.Println("gradients", *three, *five)
	// Output:
	// loss 37.5
	// gradients 50 0
}

// As finds interfaces through decorators.
func ExampleAs() {
	stage := stages.Recompute(stages.Freeze[number](times("three", 3, nil)))
	trainable, ok := stages.As[stages.Trainable[number]](stage)
	fmt.Println(ok, trainable.Params()[0].Name, trainable.Params()[0].Contributes == batchctx.Frozen)
	_, ok = stage.(stages.SplitBackward[number])
	fmt.Println("splits its backward:", ok)
	// Output:
	// true three true
	// splits its backward: false
}

func ExampleJoins() {
	tokens := stages.Spec{Name: "embed", Outputs: []stages.Port{{Name: "x"}, {Name: "mask", NoGrad: true}}}
	block := stages.Spec{Name: "block", Inputs: []stages.Port{{Name: "x"}}}
	fmt.Println(stages.Joins(&tokens, &block))
	// Output: stages: "embed" returns 2 tensors, but "block" takes 1
}

func ExampleSpec_Validate() {
	spec := stages.Spec{Slots: []string{""}, Reads: []stages.Read{{At: batchctx.AtBackward}}}
	fmt.Println(spec.Validate())
	// Output:
	// stages: stage "": it has no name
	// stages: stage "": slot 0 has no name
	// stages: stage "": read 0 names no entry part
}
