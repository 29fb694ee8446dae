package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// quantity is a tensor that is quantized in every microbatch, or a weight that is quantized in
// every step: its name, encoding and scale.
type quantity struct {
	name     string
	cols     int
	encoding kernels.Encoding
	op       kernels.Quantize // the recipe's settings
	key      uint64           // the key of its random draws
	scales   *scales
	line     int  // its line in the slab of scales
	repeated bool // a weight that is measured by another copy of the model
}

// shape returns the tensor's shape for the given number of rows.
func (q *quantity) shape(rows int) fp8.Shape {
	return fp8.Shape{Name: q.name, Rows: rows, Cols: q.cols, Encoding: q.encoding}
}

// fill returns the operation that quantizes x, without its outputs. If measure is set, the
// operation tallies the values of x, unless another copy of the model measures them.
func (q *quantity) fill(x kernels.Buffer, rows int, measure bool) kernels.Quantize {
	op := q.op
	op.X, op.Rows, op.Cols = x, rows, q.cols
	op.Scale = q.scales.slab.Scale(q.line)
	if measure && !q.repeated {
		op.Tally = q.scales.slab.Tally(q.line)
	}
	return op
}

// quantize returns the halves of x selected by usage. Its values are measured only once: in the
// first pass (L13), and when x is quantized rowwise. A backward that quantizes an input again does
// so only columnwise, and therefore does not measure it again.
func (c *call) quantize(x kernels.Buffer, q *quantity, rows int, usage fp8.Usage) fp8.Tensor {
	shape := q.shape(rows)
	row, col := c.half(&shape, usage, fp8.Rowwise), c.half(&shape, usage, fp8.Columnwise)
	op := q.fill(x, rows, c.mb.Records() && usage != fp8.Columnwise)
	op.Rowwise, op.Columnwise = shape.Half(fp8.Rowwise, row), shape.Half(fp8.Columnwise, col)
	if op.Stochastic {
		op.Key = kernels.Key{Seed: c.mb.Seed(), Step: c.mb.Step(), Microbatch: int64(c.mb.Index()), Op: q.key}
	}
	c.mb.Check(c.dev.Quantize(op))
	return fp8.NewTensor(shape, row, col)
}

// half returns a buffer for one half of a tensor, or the zero Buffer if that half is not in
// usage.
func (c *call) half(shape *fp8.Shape, usage, half fp8.Usage) kernels.Buffer {
	if usage&half == 0 {
		return kernels.Buffer{}
	}
	return c.allocOf(memory.FP8, kernels.Uint8, shape.Bytes(half))
}

// dequantize sets x to the values of the tensor, which has only one half.
func (c *call) dequantize(x kernels.Buffer, t *fp8.Tensor) {
	if t.Usage() == fp8.Columnwise {
		c.mb.Check(c.dev.Dequantize(x, c.columnwise(t), true))
	} else {
		c.mb.Check(c.dev.Dequantize(x, c.rowwise(t), false))
	}
}

// rowwise and columnwise return a half of a tensor, borrowed.
func (c *call) rowwise(t *fp8.Tensor) kernels.Quantized {
	half, err := t.Rowwise()
	c.mb.Check(err)
	return half
}

func (c *call) columnwise(t *fp8.Tensor) kernels.Quantized {
	half, err := t.Columnwise()
	c.mb.Check(err)
	return half
}

// keepColumnwise releases the rowwise half.
func (c *call) keepColumnwise(t *fp8.Tensor) {
	row, _ := t.Buffers()
	c.mb.Check(t.Keep(c.mb, fp8.Columnwise))
	c.disown(row)
}

// release releases a tensor that the call owns.
func (c *call) release(t *fp8.Tensor) {
	row, col := t.Buffers()
	c.disown(row)
	c.disown(col)
	c.mb.Check(t.Release(c.mb))
}

// saveTensor saves the only half of a tensor for a later action.
func (c *call) saveTensor(consumer batchctx.Consumer, slot batchctx.Slot, t *fp8.Tensor) {
	row, col := t.Buffers()
	c.mb.Check(t.Save(c.mb, consumer, slot))
	c.disown(row)
	c.disown(col)
}

// takeTensor takes a saved tensor from a slot. If rows is 0, the number of rows is derived from
// the size of the half.
func (c *call) takeTensor(slot batchctx.Slot, q *quantity, rows int, usage fp8.Usage) fp8.Tensor {
	t, err := fp8.Take(c.mb, slot, q.shape(rows), usage)
	c.mb.Check(err)
	row, col := t.Buffers()
	c.own(row)
	c.own(col)
	return t
}

// takeKept returns n elements that the forward kept in a slot. They are borrowed, or decoded to a
// new buffer if they were quantized. endKept releases them.
func (c *call) takeKept(slot batchctx.Slot, q *quantity, n, rows int) kernels.Buffer {
	if q == nil {
		return c.mb.Take(slot)
	}
	b := c.workspace(n)
	low := c.takeTensor(slot, q, rows, fp8.Rowwise)
	c.dequantize(b, &low)
	c.release(&low)
	return b
}

func (c *call) endKept(slot batchctx.Slot, q *quantity, b kernels.Buffer) {
	if q == nil {
		c.pass(slot, b)
	} else {
		c.free(b)
	}
}

// quantizedMatMul computes a product. It supplies the workspace; the caller sets everything else.
func (c *call) quantizedMatMul(op kernels.QuantizedMatMul) {
	op.Workspace = c.scratch(c.dev.QuantizedWorkspace(op.M, op.N, op.K))
	c.mb.Check(c.dev.QuantizedMatMul(op))
	c.free(op.Workspace)
}
