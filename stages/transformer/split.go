package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// A stage computes B and I with the same code. B also computes the gradients of the weights. I does
// not: it leaves their operands for W, each layer's input in the slot in which the forward saved it
// and each layer's output gradient in a separate slot. I releases everything else, as B does.

// split describes how a call relates to W.
type split struct {
	input     bool  // the call is I
	forWeight slots // slots that I leaves and W takes; none in B
}

// slots is a set of a stage's slots.
type slots uint32

// with returns the set with the given slots added if include is set.
func (s slots) with(include bool, more ...batchctx.Slot) slots {
	if include {
		for _, slot := range more {
			s |= 1 << slot
		}
	}
	return s
}

func (s slots) has(slot batchctx.Slot) bool { return s>>slot&1 == 1 }

// trains reports whether any of the uses is not frozen.
func trains(mb batchctx.Microbatch[kernels.Buffer], uses ...batchctx.Param) bool {
	for _, use := range uses {
		if !mb.Frozen(use) {
			return true
		}
	}
	return false
}

// leaves reports whether the call is I and must leave the slot for W.
func (c *call) leaves(slot batchctx.Slot) bool { return c.split.input && c.split.forWeight.has(slot) }

// carry returns a buffer for a gradient. The caller passes the buffer to leave.
func (c *call) carry(slot batchctx.Slot, n int) kernels.Buffer {
	if c.leaves(slot) {
		return c.alloc(memory.Carry, n)
	}
	return c.workspace(n)
}

// leave releases a buffer that carry returned, or leaves it for W.
func (c *call) leave(slot batchctx.Slot, b kernels.Buffer) {
	if c.leaves(slot) {
		c.saveFor(batchctx.ByWeight, slot, b)
	} else {
		c.free(b)
	}
}

// pass releases a buffer that was taken from a slot, or leaves it there for W.
func (c *call) pass(slot batchctx.Slot, b kernels.Buffer) {
	if !c.leaves(slot) {
		c.mb.ReleaseSaved(slot)
	} else {
		c.keep(slot, b)
	}
}

// keep leaves an argument for W, without a copy, if W takes the slot.
func (c *call) keep(slot batchctx.Slot, b kernels.Buffer) {
	if c.leaves(slot) {
		c.saveFor(batchctx.ByWeight, slot, c.own(c.mb.Retain(b)))
	}
}

// droppedWeights computes W for a linear layer followed by a dropout, from the layer's input and
// the gradient of the dropout's output.
func (c *call) droppedWeights(x, dy kernels.Buffer, l layer, d *dropout, rows int) {
	dropped := c.dropoutBackward(dy, d)
	l.weightGradients(c, x, dropped, rows)
	c.freeDropped(dropped, dy)
}

// normedWeights computes W for a norm and the linear layer after it, from the slots of the norm's
// input and of both outputs' gradients.
func (c *call) normedWeights(input, gradNorm, gradOut batchctx.Slot, n *norm, l layer, width int) {
	if !c.split.forWeight.has(input) {
		return
	}
	x := c.mb.Take(input)
	rows := x.N / width
	y := c.workspace(x.N)
	s := c.norm(y, x, n, rows)
	if c.split.forWeight.has(gradOut) {
		l.weightGradients(c, y, c.mb.Take(gradOut), rows)
		c.mb.ReleaseSaved(gradOut)
	}
	c.free(y)
	if c.split.forWeight.has(gradNorm) {
		c.normBackward(kernels.Buffer{}, c.mb.Take(gradNorm), x, s, n, rows)
		c.mb.ReleaseSaved(gradNorm)
	}
	c.freeStatistics(s)
	c.mb.ReleaseSaved(input)
}
