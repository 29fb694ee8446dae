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
	weight, grad := &tensor{}, &tensor{}
	run, err := runner.New(runner.Config[*tensor]{
		Stages: []stages.Stage[*tensor]{line(weight, grad)}, Parts: []string{"point"}, Gradients: sums{},
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
		weight.x -= 0.2 * factor * grad.x
		value, _ := step.Loss("error")
		fmt.Printf("step %d  loss %7.4f  weight %.3f  growth per microbatch %d bytes\n", step.Step, value, weight.x, step.Growth)
	}
}

type tensor struct{ x, y float64 } // yours, whatever it is

// line is a stage: the error of weight·x against y.
func line(weight, grad *tensor) stages.Stage[*tensor] {
	var d stages.Decl[*tensor]
	point, slope := d.Part("point"), d.Slot("slope")
	miss, w := d.Loss("error"), d.Param("weight", grad)
	return d.Stage("line",
		func(_ context.Context, mb batchctx.Microbatch[*tensor], _, _ []*tensor) error {
			p := mb.Part(point) // borrowed; this is its last read, so it ends with the action
			e := weight.x*p.x - p.y
			mb.Loss(miss, e*e/2, 1)             // two numbers: no tensor can hide behind a loss
			mb.Save(slope, &tensor{x: e * p.x}) // handed over until the backward takes it
			return nil
		},
		func(_ context.Context, mb batchctx.Microbatch[*tensor], _, _ []*tensor) error {
			if g, trains := mb.Grad(w); trains { // to add to, zero at first
				g.x += float64(mb.LossSeed(miss)) * mb.Take(slope).x
			}
			return nil
		})
}

// sums is the arithmetic of step end.
type sums struct{}

func (sums) Zero(g *tensor) error                  { *g = tensor{}; return nil }
func (sums) Add(dst, src *tensor) error            { dst.x += src.x; return nil }
func (sums) SumSquares(g *tensor) (float64, error) { return g.x * g.x, nil }
