package main

import (
	"errors"
	"time"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/cachingsim"
)

// cached is the memory of a training framework on PyTorch's caching allocator: the allocations
// of a step of Weir in the same order, but with the lifetimes of TransformerEngine. The
// low-precision copies of a weight stay in the module that made them, for the next step. Each
// scale, and the history from which it is computed, is a separate allocation, which lives as long
// as its data; the scale and history of a weight's copy are never released. The largest workspace
// of a product is kept.
//
// The allocator is simulated; the host executes its calls to its device.
type cached struct {
	result     lent
	recording  *recording
	clears     bool // the copies are cleared by hand before memory is lent
	expandable bool // the segments of the allocator
	allocator  *cachingsim.Allocator
	device     *driver
	took       []time.Duration // by round: the time that the calls to the device took
	executed   int             // number of events of the history that were executed

	addresses []int64 // of weights, gradients and moments; stale while these are released
	made      []int64 // copies of weights, in the order of a step
	scaled    int     // number of copies that already have a scale and a history
	kept      bool    // the largest workspace is allocated
}

// The sizes of TransformerEngine's allocations: a float32 for the scale of a tensor, and a
// history of 1,024 for each of a linear layer's five tensors.
const (
	scale   = 4
	history = 4 * 5 * 1024
)

// maxReserved is the size of the simulated device.
const maxReserved = 256 << 20

// open allocates the resident memory of a model. The caller closes the device.
func (c *cached) open(step *recording) (err error) {
	c.recording, c.allocator = step, cachingsim.New(cachingsim.Config{Expandable: c.expandable, History: true})
	if c.addresses, err = c.mallocs(c.recording.resident...); err == nil {
		c.device, err = newDriver(maxReserved)
	}
	return err
}

// round replays a step, lends the memory, takes it back, and loads the model again.
func (c *cached) round() error {
	if err := errors.Join(c.step(), c.release()); err != nil {
		return err
	}
	stats := c.allocator.Stats()
	c.result.Allocated, c.result.Reserved = stats.Allocated.Current, stats.Reserved.Current
	var err error
	if c.addresses, err = c.mallocs(c.recording.resident...); err != nil {
		return err
	}
	history := c.allocator.Snapshot().Traces[0]
	took, err := c.device.run(history[c.executed:])
	c.executed, c.took = len(history), append(c.took, took)
	return err
}

// mallocs allocates blocks and returns their addresses.
func (c *cached) mallocs(sizes ...int64) (addresses []int64, err error) {
	for _, bytes := range sizes {
		address, err := c.allocator.Malloc(cachingsim.Request{Bytes: bytes})
		if err != nil {
			return addresses, err
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// free releases blocks.
func (c *cached) free(addresses []int64) (err error) {
	for _, address := range addresses {
		err = errors.Join(err, c.allocator.Free(address))
	}
	return err
}

// step replays a step.
func (c *cached) step() error {
	live := map[uint64][]int64{}
	copies := 0
	for _, e := range c.recording.events {
		var err error
		switch {
		case !e.Alloc:
			err = c.free(live[e.Serial])
		case c.recording.copies[e.Serial]:
			if copies++; copies > len(c.made) { // otherwise the module still has the copy of the previous step
				err = c.allocateCopy(e.Bytes)
			}
		case e.Class == memory.Workspace && e.Bytes == c.recording.workspace:
			if !c.kept {
				c.kept = true
				_, err = c.mallocs(e.Bytes)
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

// allocateCopy allocates a copy of a weight, and in the first step its scale and history.
func (c *cached) allocateCopy(bytes int64) error {
	address, err := c.mallocs(bytes)
	c.made = append(c.made, address...)
	if err == nil && len(c.made) > c.scaled {
		c.scaled++
		_, err = c.mallocs(scale, history/2) // two copies share a layer
	}
	return err
}

// release releases weights, gradients and moments, clears the copies if configured, and empties
// the cache, as a framework does before it lends its memory.
func (c *cached) release() error {
	err := c.free(c.addresses)
	if c.clears {
		err = errors.Join(err, c.free(c.made))
		c.made = nil
	}
	c.allocator.EmptyCache()
	return err
}
