package transformer

import (
	"errors"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// maxOwned is the maximum number of buffers that a call to a stage owns at once.
const maxOwned = 12

// errOwned reports a bug in a stage of this package.
var errOwned = errors.New("transformer: a call of a stage has lost track of its buffers")

// call is the state of a call to a stage, including the buffers that it owns. A method that fails
// does not return (batchctx.Microbatch), so the code of a forward or a backward reads like its
// formulas. The deferred abandon then releases the buffers that the call still owns.
type call struct {
	dev   kernels.Compute
	mb    batchctx.Microbatch[kernels.Buffer]
	owned [maxOwned]kernels.Buffer
	split split

	sequences func(microbatch int) []Sequence // Model.Sequences
	places    []span                          // the result of spans
}

// abandon releases the buffers that are left after a failure.
func (c *call) abandon() {
	for i, b := range c.owned {
		if b != (kernels.Buffer{}) {
			c.mb.ReleaseAfterFailure(b, false)
			c.owned[i] = kernels.Buffer{}
		}
	}
}

// done ends a successful call. It returns an error if the call still owns a buffer.
func (c *call) done() error {
	for _, b := range c.owned {
		if b != (kernels.Buffer{}) {
			return errOwned
		}
	}
	return nil
}

// own makes the call the owner of a reference.
func (c *call) own(b kernels.Buffer) kernels.Buffer {
	for i := range c.owned {
		if c.owned[i] == (kernels.Buffer{}) {
			c.owned[i] = b
			return b
		}
	}
	c.mb.ReleaseAfterFailure(b, false)
	c.mb.Check(errOwned)
	return b
}

// disown removes a buffer that the call has released or passed on.
func (c *call) disown(b kernels.Buffer) {
	for i := range c.owned {
		if c.owned[i] == b {
			c.owned[i] = kernels.Buffer{}
			return
		}
	}
}

// alloc returns a float32 buffer of n elements that the call owns.
func (c *call) alloc(class memory.Class, n int) kernels.Buffer {
	return c.allocOf(class, kernels.Float32, n)
}

// allocOf is alloc for elements of any type.
func (c *call) allocOf(class memory.Class, t kernels.DType, n int) kernels.Buffer {
	return c.own(c.mb.Must(c.dev.Alloc(class, t, n)))
}

// workspace returns a float32 buffer of n elements that the call must free.
func (c *call) workspace(n int) kernels.Buffer { return c.alloc(memory.Workspace, n) }

// scratch returns a workspace of n elements for an operation, or the zero Buffer if n is 0.
func (c *call) scratch(n int) kernels.Buffer {
	if n == 0 {
		return kernels.Buffer{}
	}
	return c.workspace(n)
}

// saved returns a float32 buffer of n elements, to be passed to save.
func (c *call) saved(n int) kernels.Buffer { return c.alloc(memory.Saved, n) }

// free releases a buffer that the call owns.
func (c *call) free(b kernels.Buffer) {
	if b != (kernels.Buffer{}) {
		c.disown(b)
		c.mb.Release(b)
	}
}

// save saves a buffer that the call owns for the backward. In Eval, and in the first pass of a
// stage that recomputes, it releases the buffer instead.
func (c *call) save(slot batchctx.Slot, b kernels.Buffer) {
	c.saveFor(batchctx.ByBackward, slot, b)
}

func (c *call) saveFor(consumer batchctx.Consumer, slot batchctx.Slot, b kernels.Buffer) {
	c.mb.SaveFor(consumer, slot, b)
	c.disown(b)
}

// saveInput saves an argument, without a copy.
func (c *call) saveInput(slot batchctx.Slot, b kernels.Buffer) { c.save(slot, c.own(c.mb.Retain(b))) }

// hand passes a buffer that the call owns to the runner.
func (c *call) hand(to *kernels.Buffer, b kernels.Buffer) {
	c.disown(b)
	*to = b
}

// grad returns the accumulator of a parameter, and whether to add to it. In I, and for a frozen
// parameter, it returns the zero Buffer.
func (c *call) grad(use batchctx.Param) (g kernels.Buffer, accumulate bool) {
	if c.split.input {
		return kernels.Buffer{}, false
	}
	g, write := c.mb.GradFirst(use)
	if write == batchctx.Skip {
		return kernels.Buffer{}, false
	}
	return g, write == batchctx.Add
}
