// Embed trains y = 3x with one stage, made of two closures over buffers of an arena. After every
// microbatch the runner compares the live bytes that the arena counts with those that the step counts.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

type (
	T  = kernels.Buffer // or a tensor of your own
	MB = batchctx.Microbatch[T]
)

func main() {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	weight, err1 := dev.Floats(memory.Resident, 0)
	grad, err2 := dev.Floats(memory.Resident, 0)
	run, err := runner.New(runner.Config[T]{Stages: []stages.Stage[T]{line(dev, weight, grad)}, Spaces: runner.Spaces(dev)})
	if err := errors.Join(err, err1, err2); err != nil {
		log.Fatal(err)
	}
	points := runner.Indexed(func(_ context.Context, e batchctx.Entry[T]) error {
		x := float32(e.Index()%7) - 3
		e.Put("point", e.Must(dev.Floats(memory.Entry, x, 3*x)))
		return nil
	})
	for range 6 {
		step, err := run.Step(context.Background(), 4096, points)
		if err != nil {
			log.Fatal(err)
		}
		err = step.Update(func(factor float64) error { // factor is 1 / total weight; Update fails after an empty or skipped step
			dev.Float32s(weight)[0] -= 0.2 * float32(factor) * dev.Float32s(grad)[0]
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("step %d  loss %7.4f  weight %.3f  growth per microbatch %v\n", step.Step, step.Loss("error"), dev.Float32s(weight)[0], step.Growth)
	}
}

// line returns a stage whose loss is half the squared error of weight·x against y.
func line(dev kernels.Addressable, weight, grad T) stages.Stage[T] {
	var d stages.Decl[T]
	point, slope := d.Part("point"), d.Slot("slope")
	miss, w := d.Loss("error"), d.Param("weight", grad)
	return d.Stage("line",
		func(_ context.Context, mb MB, _, _ []T) error {
			p := dev.Float32s(mb.Part(point)) // borrowed; released after the last action that reads it
			e := dev.Float32s(weight)[0]*p[0] - p[1]
			mb.Loss(miss, float64(e*e/2), 1)                          // two numbers: a loss cannot keep a tensor
			mb.Save(slope, mb.Must(dev.Floats(memory.Saved, e*p[0]))) // kept until the backward takes it
			return nil
		},
		func(_ context.Context, mb MB, _, _ []T) error {
			if g, trains := mb.Grad(w); trains { // an accumulator, zero at first
				dev.Float32s(g)[0] += mb.LossSeed(miss) * dev.Float32s(mb.Take(slope))[0]
			}
			return nil
		})
}
