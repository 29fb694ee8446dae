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

func main() {
	l := &line{weight: &tensor{}, grad: &tensor{}}
	run, err := runner.New(runner.Config[*tensor]{
		Stages: []stages.Stage[*tensor]{l}, Parts: []string{"point"}, Gradients: sums{},
		Space:  memory.NewCollected(nil, func(*tensor) int64 { return 16 }),
		Losses: []loss.Def{{Name: "error", Reduction: loss.Mean, Objective: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	points := runner.SourceFunc[*tensor](func(_ context.Context, e *batchctx.Entry[*tensor]) error {
		x := float64(e.Microbatch()%7) - 3
		return e.Put(0, &tensor{x, 3 * x})
	})
	for range 6 {
		step, err := run.Step(context.Background(), 4096, points)
		if err != nil {
			log.Fatal(err)
		}
		factor, err := step.Factor() // 1 / total weight, taken once; an error where there is no update
		if err != nil {
			log.Fatal(err)
		}
		l.weight.x -= 0.2 * factor * l.grad.x
		value, _ := step.Loss("error")
		fmt.Printf("step %d  loss %7.4f  weight %.3f  growth per microbatch %d bytes\n", step.Step, value, l.weight.x, step.Growth)
	}
}

type tensor struct{ x, y float64 } // yours, whatever it is

type line struct{ weight, grad *tensor } // a stage: error of weight·x against y

func (l *line) Spec() stages.Spec {
	return stages.Spec{Name: "line", Reads: []stages.Read{{Part: "point"}}, Slots: 1, Losses: []string{"error"}}
}

func (l *line) Params() []batchctx.Use[*tensor] {
	return []batchctx.Use[*tensor]{{Name: "weight", Grad: l.grad}}
}

func (l *line) Forward(_ context.Context, mb batchctx.Microbatch[*tensor], _, _ []*tensor) error {
	point := mb.Part(1) // borrowed; this is its last read, so it ends with the action
	d := l.weight.x*point.x - point.y
	mb.Loss(1, d*d/2, 1)                // two numbers: no tensor can hide behind a loss
	mb.Save(1, &tensor{x: d * point.x}) // handed over until the backward takes it
	return nil
}

func (l *line) Backward(_ context.Context, mb batchctx.Microbatch[*tensor], _, _ []*tensor) error {
	saved := mb.Take(1)    // lent until the action ends; a second Take is an error
	seed := mb.LossSeed(1) // what the gradient of the loss starts with
	if grad, trains := mb.Grad(1); trains {
		grad.x += float64(seed) * saved.x
	}
	return nil
}

// sums is the arithmetic of step end.
type sums struct{}

func (sums) Zero(g *tensor) error                  { *g = tensor{}; return nil }
func (sums) Add(dst, src *tensor) error            { dst.x += src.x; return nil }
func (sums) SumSquares(g *tensor) (float64, error) { return g.x * g.x, nil }
