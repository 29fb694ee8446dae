package transformer

import (
	"errors"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// maxOwned is how many buffers one call of a stage owns at once at most.
const maxOwned = 12

// errOwned says that a stage of this package is wrong.
var errOwned = errors.New("transformer: a call of a stage has lost count of its buffers")

// call is one call of a stage: the buffers that it owns, and its first error.
// After an error every method does nothing, so that a forward or a backward reads
// like its formulas, and done releases what the call still owns.
type call struct {
	dev   kernels.Compute
	mb    *batchctx.Microbatch[kernels.Buffer]
	owned [maxOwned]kernels.Buffer
	split split
	err   error
}

// done releases what an error has left of the call's buffers, and returns the
// first error. Without one, a buffer that is left is an error itself.
func (c *call) done() error {
	for _, b := range c.owned {
		if b != (kernels.Buffer{}) {
			_ = c.mb.Release(b) // The first error is the one to tell.
			if c.err == nil {
				c.err = errOwned
			}
		}
	}
	return c.err
}

// own makes the call the owner of a reference.
func (c *call) own(b kernels.Buffer) kernels.Buffer {
	for i := range c.owned {
		if c.owned[i] == (kernels.Buffer{}) {
			c.owned[i] = b
			return b
		}
	}
	_ = c.mb.Release(b)
	c.err = errOwned
	return kernels.Buffer{}
}

// disown forgets a buffer that the call has released or handed over.
func (c *call) disown(b kernels.Buffer) {
	for i := range c.owned {
		if c.owned[i] == b {
			c.owned[i] = kernels.Buffer{}
			return
		}
	}
}

// alloc returns a buffer of n elements of float32 that the call owns.
func (c *call) alloc(class memory.Class, n int) kernels.Buffer {
	return c.allocOf(class, kernels.Float32, n)
}

// allocOf is alloc for elements of any type.
func (c *call) allocOf(class memory.Class, t kernels.DType, n int) kernels.Buffer {
	if c.err != nil {
		return kernels.Buffer{}
	}
	b, err := c.dev.Alloc(class, t, n)
	if err != nil {
		c.err = err
		return kernels.Buffer{}
	}
	return c.own(b)
}

// workspace returns a buffer that the call frees again.
func (c *call) workspace(n int) kernels.Buffer { return c.alloc(memory.Workspace, n) }

// scratch is workspace for an operation, some of which need none.
func (c *call) scratch(n int) kernels.Buffer {
	if n == 0 {
		return kernels.Buffer{}
	}
	return c.workspace(n)
}

// saved returns a buffer that the call hands to save.
func (c *call) saved(n int) kernels.Buffer { return c.alloc(memory.Saved, n) }

// free ends a buffer of the call.
func (c *call) free(b kernels.Buffer) {
	if c.err != nil || b == (kernels.Buffer{}) {
		return
	}
	c.disown(b)
	c.err = c.mb.Release(b)
}

// save hands a buffer of the call over until the backward. In Eval, and in the
// first pass of a stage that recomputes, it ends here.
func (c *call) save(slot int, b kernels.Buffer) { c.saveFor(batchctx.ByBackward, slot, b) }

func (c *call) saveFor(taker batchctx.Taker, slot int, b kernels.Buffer) {
	if c.err != nil {
		return
	}
	if c.err = c.mb.Save(slot, taker, b); c.err == nil {
		c.disown(b)
	}
}

// saveInput saves an argument, without a copy.
func (c *call) saveInput(slot int, b kernels.Buffer) {
	if c.err == nil {
		c.save(slot, c.own(c.mb.Retain(b)))
	}
}

// hand puts a buffer of the call where the runner takes it over.
func (c *call) hand(to *kernels.Buffer, b kernels.Buffer) {
	if c.err == nil {
		c.disown(b)
		*to = b
	}
}

// take lends what the forward saved.
func (c *call) take(slot int) kernels.Buffer {
	if c.err != nil {
		return kernels.Buffer{}
	}
	b, err := c.mb.Take(slot)
	c.err = err
	return b
}

// end ends what was taken, to make room.
func (c *call) end(slot int) {
	if c.err == nil {
		c.err = c.mb.End(slot)
	}
}

// part returns a part of the entry, by the stage's own numbering.
func (c *call) part(read int) kernels.Buffer {
	if c.err != nil {
		return kernels.Buffer{}
	}
	b, err := c.mb.Part(read)
	c.err = err
	return b
}

// grad returns the gradient of one of the stage's parameters, none in I and where
// it is frozen, and whether to add to it.
func (c *call) grad(use int) (g kernels.Buffer, accumulate bool) {
	if c.err != nil || c.split.input {
		return kernels.Buffer{}, false
	}
	g, write, err := c.mb.Grad(use)
	c.err = err
	if err != nil || write == batchctx.Skip {
		return kernels.Buffer{}, false
	}
	return g, write == batchctx.Add
}
