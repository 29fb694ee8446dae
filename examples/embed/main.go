// Embed trains y = 3x with tensors of its own: the runner needs to know nothing
// about them but their size.
package main

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

type tensor struct{ x, y, gradient float64 }

type microbatch = batchctx.Microbatch[*tensor]

func main() {
	weight, grad := 0.0, &tensor{}
	line := &stages.Func[*tensor]{
		Declares:   stages.Spec{Name: "line", Reads: []stages.Read{{Part: "xy"}}, Slots: 1, Losses: []string{"error"}},
		Parameters: []batchctx.Param[*tensor]{{Name: "weight", Grad: grad}},
		ForwardFunc: func(_ context.Context, mb *microbatch, _, _ []*tensor) error {
			xy, err := mb.Part(0) // borrowed
			if err != nil {
				return err
			}
			d := weight*xy.x - xy.y
			if err := mb.Save(0, batchctx.ByBackward, &tensor{gradient: d * xy.x}); err != nil { // handed over
				return err
			}
			return mb.Loss(0, d*d/2, 1) // a sum and its weight: two numbers, no tensor
		},
		BackwardFunc: func(_ context.Context, mb *microbatch, _, _ []*tensor) error {
			saved, err := mb.Take(0) // ends with this action; a second Take is an error
			if err != nil {
				return err
			}
			into, write, err := mb.Grad(0)
			if write == batchctx.First {
				into.gradient = 0
			}
			into.gradient += saved.gradient
			return err
		},
	}
	run, err := runner.New(runner.Config[*tensor]{
		Stages: []stages.Stage[*tensor]{line}, Parts: []string{"xy"}, Gradients: sums{},
		Space:  memory.NewCollected(nil, func(*tensor) int64 { return 24 }),
		Losses: []loss.Def{{Name: "error", Reduction: loss.Mean, Objective: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	data := runner.SourceFunc[*tensor](func(_ context.Context, e *batchctx.Entry[*tensor]) error {
		x := float64(e.Microbatch()%7) - 3
		return e.Put(0, &tensor{x: x, y: 3 * x})
	})
	for range 8 {
		step, err := run.Step(context.Background(), 4096, data)
		if err != nil {
			log.Fatal(err)
		}
		factor, _ := step.Factor() // 1 / total weight, once
		weight -= 0.2 * factor * grad.gradient
		value, _ := step.Loss("error")
		fmt.Printf("step %d  loss %7.4f  weight %.3f  growth per microbatch %d bytes\n", step.Step, value, weight, step.Growth)
	}
}

// sums is the arithmetic of step end.
type sums struct{}

func (sums) Zero(g *tensor) error                  { g.gradient = 0; return nil }
func (sums) Add(dst, src *tensor) error            { dst.gradient += src.gradient; return nil }
func (sums) SumSquares(g *tensor) (float64, error) { return g.gradient * g.gradient, nil }
