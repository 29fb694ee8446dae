package main

import (
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
)

// cached is the memory of a training framework on PyTorch's caching allocator: what a
// step of Weir has allocated, and in that order, but as TransformerEngine keeps it. A
// weight's copies in eight bits stay in the module that made them, for the next step; so
// does the largest workspace of a product, for ever; each scale is an allocation of its
// own, and so is the history that it comes from.
type cached struct {
	allocator *cachingsim.Allocator
	clears    bool // somebody clears the copies by hand before memory is lent
	seen      int  // of the history

	resident  []int64 // sizes of weights, gradients and moments
	addresses []int64 // of them; none while they are away
	copies    []int64 // of weights in eight bits, in the order of a step
	kept      []int64 // what nobody clears
	scales    int     // of the copies that have their scale
	workspace int64   // bytes of the largest
}

// history is TransformerEngine's default, of a linear layer's five tensors.
const history = 4 * 5 * 1024

// newCached returns the memory of a model.
func newCached(resident []int64, expandable, clears bool) *cached {
	return &cached{
		allocator: cachingsim.New(cachingsim.Config{Expandable: expandable, History: true}),
		clears:    clears, resident: resident,
	}
}

// malloc allocates and returns the address.
func (c *cached) malloc(bytes int64) (int64, error) {
	return c.allocator.Malloc(cachingsim.Request{Bytes: bytes})
}

// back allocates weights, gradients and moments, as a model does that comes back.
func (c *cached) back() error {
	for _, bytes := range c.resident {
		address, err := c.malloc(bytes)
		if err != nil {
			return err
		}
		c.addresses = append(c.addresses, address)
	}
	return nil
}

// step replays a step.
func (c *cached) step(events []kernels.Event) error {
	live := map[uint64]int64{}
	copies := 0
	for _, e := range events {
		switch {
		case !e.Alloc:
			if address, ours := live[e.Serial]; ours {
				if err := c.allocator.Free(address); err != nil {
					return err
				}
			}
			continue
		case e.Class == memory.FP8:
			if copies++; copies <= len(c.copies) {
				continue // the module has it from the step before, or since this one
			}
			address, err := c.copied(e.Bytes)
			if err != nil {
				return err
			}
			c.copies = append(c.copies, address)
			continue
		case e.Class == memory.Workspace && e.Bytes > c.workspace:
			c.workspace = e.Bytes
		}
		address, err := c.malloc(e.Bytes)
		if err != nil {
			return err
		}
		live[e.Serial] = address
	}
	return nil
}

// copied allocates a copy of a weight, and the first time its scale and history.
func (c *cached) copied(bytes int64) (int64, error) {
	address, err := c.malloc(bytes)
	if err != nil || len(c.copies) < c.scales {
		return address, err
	}
	c.scales++
	for _, small := range []int64{4, history / 2} { // two copies share a layer
		kept, err := c.malloc(small)
		if err != nil {
			return 0, err
		}
		c.kept = append(c.kept, kept)
	}
	return address, nil
}

// away takes weights, gradients and moments away, clears what is cleared and empties the
// cache: what a framework does before it lends its memory.
func (c *cached) away() error {
	gone := c.addresses
	c.addresses = nil
	if c.clears {
		gone = append(gone, c.copies...)
		c.copies = nil
	}
	for _, address := range gone {
		if err := c.allocator.Free(address); err != nil {
			return err
		}
	}
	c.allocator.EmptyCache()
	return nil
}

// asked returns what the allocator has asked of its device since the last call.
func (c *cached) asked() []snapshot.Entry {
	all := c.allocator.Snapshot().Traces[0]
	since := all[c.seen:]
	c.seen = len(all)
	return since
}
