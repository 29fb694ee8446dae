package main

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

type (
	microbatch = batchctx.Microbatch[kernels.Buffer]
	stage      = stages.Stage[kernels.Buffer]
)

// guard is a protection against a leak, with the published consequence of its absence.
type guard struct {
	Name      string `json:"name"`
	Guard     string `json:"guard"`
	Published string `json:"published"`
}

// The guards. removed is the guard that a model lacks.
const (
	nothing = iota // the plain run
	keptLoss
	attention
	fuser
)

var guards = [...]guard{
	nothing:   {"plain", "all guards in place", ""},
	keptLoss:  {"kept-loss", "a loss is two numbers", "Fast-LLM #486: 164 MiB a microbatch"},
	attention: {"attention", "saved tensors end with the backward", "TransformerEngine #1935: 1070 MiB, then 284"},
	fuser:     {"fuser", "fused operations give back what they took", "TransformerEngine #2750: out of memory at 405B"},
}

// logged is a head whose losses are logged. The guard is that a loss is two numbers. Without
// the guard, the log keeps for each loss a tensor from which the loss would be computed when the log
// is read, as a logged tensor keeps its graph.
type logged struct {
	stage
	removed bool
	losses  []func() kernels.Buffer
}

// Forward runs the head's Forward. Without the guard, it retains the input for the log.
func (l *logged) Forward(ctx context.Context, mb microbatch, in, out []kernels.Buffer) error {
	if l.removed {
		origin := mb.Retain(in[0])
		l.losses = append(l.losses, func() kernels.Buffer { return origin })
	}
	return l.stage.Forward(ctx, mb, in, out)
}

// Unwrap returns the head.
func (l *logged) Unwrap() stage { return l.stage }

// contextual is a device whose attention has a context object. The guard is that attention
// saves tensors only in the step's slots. Without the guard, the context also keeps these tensors in a
// list, which is not cleared after the backward.
type contextual struct {
	kernels.Compute
	removed       bool
	tensorObjects []kernels.Buffer
}

// CausalAttention computes attention. Without the guard, it retains three of its tensors.
func (c *contextual) CausalAttention(op kernels.CausalAttention) error {
	if err := c.Compute.CausalAttention(op); err != nil || !c.removed {
		return err
	}
	for _, b := range [...]kernels.Buffer{op.QKV, op.Out, op.LSE} {
		if err := c.Retain(b); err != nil {
			return err
		}
		c.tensorObjects = append(c.tensorObjects, b)
	}
	return nil
}

// operation is one of a fused group: x + gelu(x). It saves its input, which the group's
// backward restores. The guard is that taken tensors are released with the action. Without the guard,
// the operation keeps the restored tensor.
type operation struct {
	stages.Decl[kernels.Buffer]
	x       batchctx.Slot
	dev     kernels.Compute
	removed bool
	saved   []kernels.Buffer
}

func newOperation(name string, dev kernels.Compute, removed bool) *operation {
	o := &operation{dev: dev, removed: removed}
	o.Name = name
	o.Inputs("hidden")
	o.Outputs("hidden")
	o.x = o.Slot("x")
	return o
}

// Forward returns x + gelu(x).
func (o *operation) Forward(_ context.Context, mb microbatch, in, out []kernels.Buffer) (err error) {
	x := in[0]
	mb.Save(o.x, mb.Retain(x))
	if out[0], err = o.dev.Alloc(memory.Activation, kernels.Float32, x.N); err != nil {
		return err
	}
	if err := o.dev.GELU(out[0], x); err != nil {
		return err
	}
	return o.dev.Add(out[0], x)
}

// Backward returns dy + gelu'(x)·dy, unless gradIn is nil.
func (o *operation) Backward(_ context.Context, mb microbatch, gradOut, gradIn []kernels.Buffer) (err error) {
	x := mb.Take(o.x)
	if o.removed {
		o.saved = append(o.saved, mb.Retain(x))
	}
	if gradIn == nil {
		return nil
	}
	if gradIn[0], err = o.dev.Alloc(memory.ActGrad, kernels.Float32, x.N); err != nil {
		return err
	}
	if err := o.dev.GELUBackward(gradIn[0], gradOut[0], x); err != nil {
		return err
	}
	return o.dev.Add(gradIn[0], gradOut[0])
}
