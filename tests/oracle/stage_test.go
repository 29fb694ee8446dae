package oracle_test

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	. "github.com/weir-ml/weir/tests/oracle"
)

// T is the handle of the suite, MB the view of its stages.
type (
	T  = kernels.Buffer
	MB = batchctx.Microbatch[T]
)

var parts = []string{"mask", "tokens", "labels", "scores"}

// The slots of a stage.
const (
	forInput batchctx.Slot = iota + 1
	forWeight
	kept // its input, or the tokens
	output
	carried
	gradient // of its output, for W
	numSlots = iota
)

// stage allocates, keeps and hands on what the oracle says that a stage does, and computes
// nothing.
type stage struct {
	dev         kernels.Compute
	number      int
	first, last bool
	quantizes   bool
	bytes       func(stage int, size Size, index int) int64
	params      []batchctx.Use[T]
}

func (s *stage) Spec() stages.Spec {
	spec := stages.Spec{Name: fmt.Sprint("stage", s.number), Slots: numSlots}
	wires := []stages.Port{{Name: "x"}, {Name: "skip"}, {Name: "mask", NoGrad: true}}
	tokens := batchctx.AtForward
	if s.first {
		tokens |= batchctx.AtWeight
		spec.Reads = append(spec.Reads, stages.Read{Part: parts[Mask]})
	} else {
		spec.Inputs = wires
	}
	spec.Reads = append(spec.Reads, stages.Read{Part: parts[Tokens], At: tokens})
	if s.last {
		spec.Reads = append(spec.Reads, stages.Read{Part: parts[Labels], At: batchctx.AtForward | batchctx.AtBackward}, stages.Read{Part: parts[Scores]})
		spec.Outputs, spec.Losses = wires[:1], []string{"loss"}
	} else {
		spec.Outputs = wires
	}
	if s.quantizes {
		spec.ForwardWeights, spec.BackwardWeights, spec.InputWeights = []string{"w"}, []string{"w for the input", "w"}, 1
	}
	return spec
}

func (s *stage) Params() []batchctx.Use[T] { return s.params }

// calls makes a call of a stage short. The workspace is there from the beginning of the
// call to its end.
type calls struct {
	*stage
	mb    MB
	index int
	work  T
}

func (s *stage) begin(mb MB, work Size) *calls {
	c := &calls{stage: s, mb: mb, index: mb.Index()}
	c.work = c.alloc(memory.Workspace, work)
	return c
}

func (c *calls) end() error { c.mb.Release(c.work); return nil }

func (c *calls) alloc(class memory.Class, size Size) T {
	return c.mb.Must(c.dev.Alloc(class, kernels.Uint8, int(c.bytes(c.number, size, c.index))))
}

func (c *calls) save(slot batchctx.Slot, by batchctx.Taker, b T) { c.mb.SaveFor(by, slot, b) }

func (s *stage) Forward(_ context.Context, mb MB, in, out []T) error {
	c := s.begin(mb, ForwardWork)
	class := memory.Saved
	if s.last {
		class = memory.Loss
	}
	c.save(forInput, batchctx.ByBackward, c.alloc(class, ForInput))
	c.save(forWeight, batchctx.ByWeight, c.alloc(memory.Saved, ForWeight))
	out[0] = c.alloc(memory.Activation, X)
	switch {
	case !s.first:
		c.save(kept, batchctx.ByBackward, mb.Retain(in[0]))
	default:
		c.save(kept, batchctx.ByWeight, mb.Retain(mb.Part(2)))
	}
	switch {
	case s.last:
	case s.first:
		out[1], out[2] = c.alloc(memory.Activation, Skip), mb.Retain(mb.Part(1))
	default:
		out[1], out[2] = mb.Retain(in[1]), mb.Retain(in[2])
	}
	c.save(output, batchctx.ByWeight, mb.Retain(out[0]))
	if s.last {
		mb.Loss(1, 1, 1)
	}
	return c.end()
}

func (s *stage) Backward(_ context.Context, mb MB, gradOut, gradIn []T) error {
	c := s.backward(mb, gradOut, gradIn)
	c.contribute()
	return c.end()
}

func (s *stage) BackwardInput(_ context.Context, mb MB, gradOut, gradIn []T) error {
	c := s.backward(mb, gradOut, gradIn)
	c.save(carried, batchctx.ByWeight, c.alloc(memory.Carry, Carry))
	if !s.last {
		c.save(gradient, batchctx.ByWeight, mb.Retain(gradOut[0]))
	}
	return c.end()
}

func (s *stage) BackwardWeight(_ context.Context, mb MB) error {
	c := s.begin(mb, WeightWork)
	c.contribute()
	return c.end()
}

func (s *stage) backward(mb MB, gradOut, gradIn []T) *calls {
	c := s.begin(mb, BackwardWork)
	mb.Take(forInput)
	if s.last {
		mb.Part(batchctx.Part(len(s.Spec().Reads) - 1))
	}
	if gradIn != nil {
		gradIn[0] = c.alloc(memory.ActGrad, XGrad)
		if s.last {
			gradIn[1] = c.alloc(memory.ActGrad, SkipGrad)
		} else {
			gradIn[1] = mb.Retain(gradOut[1])
		}
	}
	return c
}

func (c *calls) contribute() {
	for i := range c.params {
		c.mb.GradFirst(batchctx.Param(i + 1))
	}
}

// QuantizeWeights makes the copies of the stage's weights.
func (s *stage) QuantizeWeights(_ context.Context, q batchctx.Quantization[T], forward, backward []T) error {
	alloc := func(class memory.Class, size Size) T {
		return q.Must(s.dev.Alloc(class, kernels.Uint8, int(s.bytes(s.number, size, -1))))
	}
	work := alloc(memory.Workspace, QuantizeWork)
	forward[0] = alloc(memory.FP8, ForwardCopy)
	if backward != nil && q.InputGradient() {
		backward[0] = alloc(memory.FP8, InputCopy)
	}
	if backward != nil {
		backward[1] = alloc(memory.FP8, BackwardCopy)
	}
	q.Release(work)
	return nil
}
