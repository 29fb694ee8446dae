package stages

import (
	"context"
	"fmt"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
)

// Call is a forward or a backward: from is in or gradOut, and to is out or gradIn, as in
// [Stage].
type Call[T any] = func(ctx context.Context, mb batchctx.Microbatch[T], from, to []T) error

// Decl declares the needs of a stage once and by name, in the style of package flag: the methods that
// declare reads, slots, losses, parameters and copies return the keys with which the stage's calls access
// them. Stage and Split make a stage from closures. A struct that embeds a Decl gets its Spec and Params.
//
// The zero value declares nothing. A Decl must be complete when its stage is passed to a runner or to a
// decorator.
type Decl[T any] struct {
	Name   string // name of the stage
	Frozen bool   // the stage has no weight gradients

	inputs, outputs []Port
	reads           []Read
	slots           []string
	consumers       []batchctx.Consumer // by slot
	losses, metrics []string            // losses includes the metrics
	copies          []batchctx.WeightCopy
	uses            []batchctx.Use[T]
}

// Inputs declares the input tensors of the stage, in order.
func (d *Decl[T]) Inputs(names ...string) { d.inputs = ports(d.inputs, names) }

// Outputs declares the output tensors of the stage, in order.
func (d *Decl[T]) Outputs(names ...string) { d.outputs = ports(d.outputs, names) }

func ports(list []Port, names []string) []Port {
	for _, name := range names {
		list = append(list, Port{Name: name})
	}
	return list
}

// NoGrad marks declared inputs and outputs that have no gradient, such as an index or a mask.
func (d *Decl[T]) NoGrad(names ...string) {
	for _, list := range [][]Port{d.inputs, d.outputs} {
		for i := range list {
			list[i].NoGrad = list[i].NoGrad || slices.Contains(names, list[i].Name)
		}
	}
}

// Part declares a read of an entry part in the given kinds of actions, by default AtForward.
func (d *Decl[T]) Part(name string, at ...batchctx.At) batchctx.Part {
	read := Read{Part: name}
	for _, a := range at {
		read.At |= a
	}
	d.reads = append(d.reads, read)
	return batchctx.Part(len(d.reads))
}

// Slot declares a slot for saved tensors. by lists the actions that take the tensor that a forward saves in
// it: ByBackward, which is the default, ByWeight, or both, if I and W read the same tensor. With both, each of
// I and W takes the tensor once, and it is released after W; if the plan does not split the backward, B takes
// it once.
func (d *Decl[T]) Slot(name string, by ...batchctx.Consumer) batchctx.Slot {
	consumer := batchctx.ByBackward
	for i, t := range by {
		if i == 0 {
			consumer = t
		} else if t != consumer {
			consumer = batchctx.ByBoth
		}
	}
	d.slots, d.consumers = append(d.slots, name), append(d.consumers, consumer)
	return batchctx.Slot(len(d.slots))
}

// Loss declares a loss that the stage records and trains: its backward must use the seed.
func (d *Decl[T]) Loss(name string) batchctx.Loss {
	d.losses = append(d.losses, name)
	return batchctx.Loss(len(d.losses))
}

// Metric declares a number that the stage records like a loss but never trains.
func (d *Decl[T]) Metric(name string) batchctx.Loss {
	d.metrics = append(d.metrics, name)
	return d.Loss(name)
}

// Param declares a use of a parameter, which contributes to grad in every microbatch. A runner refuses a
// second Param of the same name: see TiedParam.
func (d *Decl[T]) Param(name string, grad T) batchctx.Param {
	return d.Use(batchctx.Use[T]{Name: name, Grad: grad})
}

// TiedParam declares a further use of a parameter that another use, in this stage or in another one,
// declares under the same name. Each use has its own accumulator, and at step end each accumulator holds
// the total of all uses (L9).
func (d *Decl[T]) TiedParam(name string, grad T) batchctx.Param {
	return d.Use(batchctx.Use[T]{Name: name, Grad: grad, Tied: true})
}

// Use declares a use of a parameter, with any kind of contribution.
func (d *Decl[T]) Use(use batchctx.Use[T]) batchctx.Param {
	d.uses = append(d.uses, use)
	return batchctx.Param(len(d.uses))
}

// WeightCopy declares a copy of a weight that QuantizeWeights makes. at, which is AtForward or
// AtBackward, is the pass that reads it.
func (d *Decl[T]) WeightCopy(name string, at batchctx.At) batchctx.Copy {
	d.copies = append(d.copies, batchctx.WeightCopy{Name: name, At: at})
	return batchctx.Copy(len(d.copies))
}

// Spec returns the declaration.
func (d *Decl[T]) Spec() Spec {
	return Spec{
		Name: d.Name, Inputs: d.inputs, Outputs: d.outputs, Reads: d.reads, Slots: d.slots, Consumers: d.consumers,
		Losses: d.losses, Metrics: d.metrics, WeightCopies: d.copies, Frozen: d.Frozen,
	}
}

// Params returns the declared uses of parameters.
func (d *Decl[T]) Params() []batchctx.Use[T] { return d.uses }

// Stage returns a stage of two closures that borrows this declaration, so later declarations belong to
// it as well. A stage with a nil backward has no backward, which is allowed in forward-only plans and in
// frozen stages at the start of the model.
func (d *Decl[T]) Stage(name string, forward, backward Call[T]) Stage[T] {
	d.Name = name
	return &Func[T]{decl: d, Declares: Spec{Name: name}, ForwardFunc: forward, BackwardFunc: backward}
}

// Split is like Stage, but for a stage that splits its backward: input computes the gradients of its
// inputs, and weight those of its parameters.
func (d *Decl[T]) Split(name string, forward, backward, input Call[T], weight func(context.Context, batchctx.Microbatch[T]) error) Stage[T] {
	d.Name = name
	return &splitFunc[T]{Func[T]{decl: d, Declares: Spec{Name: name}, ForwardFunc: forward, BackwardFunc: backward}, input, weight}
}

type splitFunc[T any] struct {
	Func[T]
	input  Call[T]
	weight func(context.Context, batchctx.Microbatch[T]) error
}

func (f *splitFunc[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	if f.input == nil {
		return fmt.Errorf("stages: the input function of %q is nil: pass it to Decl.Split", f.Declares.Name)
	}
	return f.input(ctx, mb, gradOut, gradIn)
}

func (f *splitFunc[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	if f.weight == nil {
		return fmt.Errorf("stages: the weight function of %q is nil: pass it to Decl.Split", f.Declares.Name)
	}
	return f.weight(ctx, mb)
}
