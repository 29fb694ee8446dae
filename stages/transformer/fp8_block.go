package transformer

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// lowPrecision is the additional state of a block in FP8. The backward quantizes the operands of
// all weight gradients: B computes the gradients immediately, whereas I leaves the operands for W,
// in FP8 or NVFP4.
type lowPrecision struct {
	linears []*fp8Linear // nil in float32
	up      *quantity    // the input of GELU, as it is kept
	qkv     *quantity    // queries, keys and values, if attention is in FP8
	lines   lines
}

// class returns the class in which the forward allocates a tensor that the backward needs: Saved,
// or Workspace if a quantized copy is kept instead.
func (p *lowPrecision) class(kept *quantity) memory.Class {
	if kept == nil {
		return memory.Saved
	}
	return memory.Workspace
}

// inFP8 returns the stage for a block whose linear layers compute in FP8.
func (b *builder) inFP8(s *block, qkv, output, up, down *linear) stages.Stage[kernels.Buffer] {
	layer := func(l *linear, name string) *fp8Linear {
		name = s.Name + name
		return &fp8Linear{
			linear: l, name: name,
			inputs:  b.quantity(name+".input", fp8.Input, l.in),
			weights: b.quantity(name+".weight", fp8.Weight, l.out),
			grads:   b.quantity(name+".grad_output", fp8.GradOutput, l.out),
		}
	}
	scales := b.scales()
	first := len(scales.slots)
	qkv8, output8 := layer(qkv, ".attention.qkv"), layer(output, ".attention.output")
	up8, down8 := layer(up, ".mlp.up"), layer(down, ".mlp.down")
	wide := b.quantity(s.Name+".mlp.up.output", fp8.Output, up.out)
	s.low.up = &wide
	if b.cfg.FP8Attention {
		heads := b.quantity(s.Name+".attention.qkv.output", fp8.Output, qkv.out)
		s.low.qkv = &heads
		output8.keepsInput = true
	}
	s.low.lines = lines{scales: scales, first: first, count: len(scales.slots) - first}
	b.measuring = append(b.measuring, &s.low.lines)
	s.qkv, s.output, s.up, s.down = qkv8, output8, up8, down8
	s.low.linears = []*fp8Linear{qkv8, output8, up8, down8}
	for _, l := range s.low.linears {
		l.forwardCopy = s.WeightCopy(l.name, batchctx.AtForward)
		l.backwardCopy = s.WeightCopy(l.name, batchctx.AtBackward)
	}
	for _, l := range []struct {
		*fp8Linear
		name string
	}{{down8, "down"}, {up8, "up"}, {output8, "output"}, {qkv8, "qkv"}} {
		l.inputSlot, l.gradSlot, l.biasSum = s.Slot("for "+l.name+": input"), s.Slot("for "+l.name+": gradient"), s.Slot("for "+l.name+": bias gradient")
	}
	s.norm2.gainSum, s.norm2.biasSum = s.Slot("for norm2: gain gradient"), s.Slot("for norm2: bias gradient")
	s.norm1.gainSum, s.norm1.biasSum = s.Slot("for norm1: gain gradient"), s.Slot("for norm1: bias gradient")
	return &fp8Stage{asStage(s), &s.low}
}

// fp8Stage is the stage for a block in FP8.
type fp8Stage struct {
	*stage
	low *lowPrecision
}

// QuantizeWeights makes the requested copies of the weights: columnwise for the forward, and
// rowwise for the backward.
func (s *fp8Stage) QuantizeWeights(_ context.Context, q batchctx.Quantization[kernels.Buffer]) error {
	if q.Pass() == batchctx.Train {
		if err := s.low.lines.begin(); err != nil {
			return err
		}
	}
	for _, l := range s.low.linears {
		shape := l.weights.shape(l.in)
		half := func(k batchctx.Copy, usage fp8.Usage) (none kernels.Quantized) {
			if !q.Wants(k) {
				return none
			}
			b := q.Must(s.dev.Alloc(memory.FP8, kernels.Uint8, shape.Bytes(usage)))
			q.Put(k, b)
			return shape.Half(usage, b)
		}
		op := l.weights.fill(q.Weight(l.weightUse), l.in, q.Pass() == batchctx.Train)
		op.Columnwise, op.Rowwise = half(l.forwardCopy, fp8.Columnwise), half(l.backwardCopy, fp8.Rowwise)
		q.Check(s.dev.Quantize(op))
	}
	return nil
}
