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
)

var slots = []string{"for input", "for weight", "kept", "output", "carried", "gradient"}

// stage allocates, keeps and returns the buffers that the oracle expects of a stage, but computes nothing.
type stage struct {
	dev         kernels.Compute
	number      int
	first, last bool
	quantizes   bool
	bytes       func(stage int, size Size, index int) int64
	params      []batchctx.Use[T]
}

func (s *stage) Spec() stages.Spec {
	spec := stages.Spec{Name: fmt.Sprint("stage", s.number), Slots: slots}
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
		spec.WeightCopies = []batchctx.WeightCopy{
			{Name: "w", At: batchctx.AtForward}, {Name: "w for the input", At: batchctx.AtBackward, InputOnly: true}, {Name: "w", At: batchctx.AtBackward},
		}
	}
	return spec
}

func (s *stage) Params() []batchctx.Use[T] { return s.params }

func (s *stage) alloc(mb MB, class memory.Class, size Size) T {
	return mb.Must(s.dev.Alloc(class, kernels.Uint8, int(s.bytes(s.number, size, mb.Index()))))
}

func (s *stage) Forward(_ context.Context, mb MB, in, out []T) error {
	work := s.alloc(mb, memory.Workspace, ForwardWork)
	class := memory.Saved
	if s.last {
		class = memory.FP8
		mb.Loss(1, 1, 1)
	}
	mb.SaveFor(batchctx.ByBackward, forInput, s.alloc(mb, class, ForInput))
	mb.SaveFor(batchctx.ByWeight, forWeight, s.alloc(mb, memory.Saved, ForWeight))
	out[0] = s.alloc(mb, memory.Activation, X)
	if s.first {
		mb.SaveFor(batchctx.ByWeight, kept, mb.Retain(mb.Part(2)))
	} else {
		mb.SaveFor(batchctx.ByBackward, kept, mb.Retain(in[0]))
	}
	switch {
	case s.last:
	case s.first:
		out[1], out[2] = s.alloc(mb, memory.Activation, Skip), mb.Retain(mb.Part(1))
	default:
		out[1], out[2] = mb.Retain(in[1]), mb.Retain(in[2])
	}
	mb.SaveFor(batchctx.ByWeight, output, mb.Retain(out[0]))
	mb.Release(work)
	return nil
}

func (s *stage) Backward(_ context.Context, mb MB, gradOut, gradIn []T) error {
	work := s.back(mb, gradOut, gradIn)
	s.contribute(mb)
	mb.Release(work)
	return nil
}

func (s *stage) BackwardInput(_ context.Context, mb MB, gradOut, gradIn []T) error {
	work := s.back(mb, gradOut, gradIn)
	mb.SaveFor(batchctx.ByWeight, carried, s.alloc(mb, memory.Carry, Carry))
	if !s.last {
		mb.SaveFor(batchctx.ByWeight, gradient, mb.Retain(gradOut[0]))
	}
	mb.Release(work)
	return nil
}

func (s *stage) BackwardWeight(_ context.Context, mb MB) error {
	work := s.alloc(mb, memory.Workspace, WeightWork)
	s.contribute(mb)
	mb.Take(carried)
	if !s.last {
		mb.Take(gradient)
	}
	mb.Release(work)
	return nil
}

// back makes the gradients of the inputs, if they are needed, and returns its live workspace.
func (s *stage) back(mb MB, gradOut, gradIn []T) (work T) {
	work = s.alloc(mb, memory.Workspace, BackwardWork)
	mb.Take(forInput)
	if s.last {
		mb.LossSeed(1)
	}
	if !s.first {
		mb.Take(kept)
	}
	if s.last {
		mb.Part(batchctx.Part(len(s.Spec().Reads) - 1)) // the labels are still live
	}
	if gradIn != nil {
		gradIn[0] = s.alloc(mb, memory.ActGrad, XGrad)
		if s.last {
			gradIn[1] = s.alloc(mb, memory.ActGrad, SkipGrad)
		} else {
			gradIn[1] = mb.Retain(gradOut[1])
		}
	}
	return work
}

func (s *stage) contribute(mb MB) {
	mb.Take(forWeight)
	mb.Take(output)
	if s.first {
		mb.Take(kept)
	}
	for i := range s.params {
		mb.GradFirst(batchctx.Param(i + 1))
	}
}

// QuantizeWeights makes the copies of the stage's weights.
func (s *stage) QuantizeWeights(_ context.Context, q batchctx.Quantization[T]) error {
	alloc := func(class memory.Class, size Size) T {
		return q.Must(s.dev.Alloc(class, kernels.Uint8, int(s.bytes(s.number, size, -1))))
	}
	work := alloc(memory.Workspace, QuantizeWork)
	for i, size := range []Size{ForwardCopy, InputCopy, BackwardCopy} {
		if k := batchctx.Copy(i + 1); q.Wants(k) {
			q.Put(k, alloc(memory.FP8, size))
		}
	}
	q.Release(work)
	return nil
}
