package main

import (
	"errors"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
)

// cached is the memory of a training framework on PyTorch's caching allocator: what a
// step of Weir has allocated, and in that order, but as TransformerEngine keeps it. A
// weight's copies in eight bits stay in the module that made them, for the next step; each
// scale is an allocation, with its data or, of a copy, for ever, and so is the
// history that it comes from; and the largest workspace of a product stays.
type cached struct {
	allocator *cachingsim.Allocator
	clears    bool // somebody clears the copies by hand before memory is lent
	seen      int  // of the history

	resident  []int64 // sizes of weights, gradients and moments
	addresses []int64 // of them; none while they are away
	copies    []int64 // of weights in eight bits, in the order of a step
	scaled    int     // copies that have had their scale and history
	workspace int64   // bytes of the one that stays
}

// The sizes that TransformerEngine allocates: a float32 for the scale of a tensor, and a history of
// 1,024 for each of a linear layer's five tensors.
const (
	scale   = 4
	history = 4 * 5 * 1024
)

// event is an allocation or a release in a step.
type event struct {
	kernels.Event
	copied  bool  // it is a copy of a weight
	largest int64 // bytes of the largest workspace of the step
}

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

// mallocs allocates several and returns their addresses.
func (c *cached) mallocs(sizes ...int64) (addresses []int64, err error) {
	for _, bytes := range sizes {
		address, err := c.malloc(bytes)
		if err != nil {
			return addresses, err
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// back allocates weights, gradients and moments, as a model does that comes back.
func (c *cached) back() (err error) {
	c.addresses, err = c.mallocs(c.resident...)
	return err
}

// step replays a step.
func (c *cached) step(events []event) error {
	live := map[uint64][]int64{}
	copies := 0
	for _, e := range events {
		var err error
		switch {
		case !e.Alloc:
			for _, address := range live[e.Serial] {
				err = errors.Join(err, c.allocator.Free(address))
			}
		case e.copied:
			if copies++; copies > len(c.copies) { // else the module has it from the step before
				err = c.copied(e.Bytes)
			}
		case e.Class == memory.Workspace && e.Bytes == e.largest:
			if c.workspace == 0 {
				c.workspace = e.Bytes
				_, err = c.malloc(e.Bytes)
			}
		case e.Class == memory.FP8:
			live[e.Serial], err = c.mallocs(e.Bytes, scale)
		default:
			live[e.Serial], err = c.mallocs(e.Bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copied allocates a copy of a weight, and the first time its scale and history.
func (c *cached) copied(bytes int64) error {
	address, err := c.malloc(bytes)
	c.copies = append(c.copies, address)
	if err == nil && len(c.copies) > c.scaled {
		c.scaled++
		_, err = c.mallocs(scale, history/2) // two copies share a layer
	}
	return err
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
