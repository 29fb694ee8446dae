package main

import (
	"errors"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/cachingsim"
)

// cached is the memory of a training framework on PyTorch's caching allocator: the allocations
// of a step of Weir in the same order, but with the lifetimes of TransformerEngine. The
// low-precision copies of a weight stay in the module that made them, for the next step. Each
// scale, and the history from which it is computed, is a separate allocation. It lives as long
// as its data; those of a weight's copy are never released. The largest workspace of a product
// is kept.
//
// The allocator is simulated; the host executes its calls to its device.
type cached struct {
	lent      lent
	took      []time.Duration // by round: the calls to the device
	device    *driver
	allocator *cachingsim.Allocator
	clears    bool // the copies are cleared by hand before memory is lent
	executed  int  // number of events of the history that were executed

	resident  []int64 // sizes of weights, gradients and moments
	addresses []int64 // their addresses; nil while they are released
	copies    []int64 // low-precision copies of weights, in the order of a step
	scaled    int     // number of copies that already have a scale and a history
	workspace int64   // size of the kept workspace, in bytes
}

// The sizes of TransformerEngine's allocations: a float32 for the scale of a tensor, and a
// history of 1,024 for each of a linear layer's five tensors.
const (
	scale   = 4
	history = 4 * 5 * 1024
)

// event is an allocation or a release in a step.
type event struct {
	kernels.Event
	copied  bool  // the allocation is a copy of a weight
	largest int64 // size of the largest workspace of the step, in bytes
}

// mostReserved is the size of the simulated device.
const mostReserved = 256 << 20

// newCached allocates the resident memory of a model. The caller closes its device.
func newCached(name string, resident []int64, expandable, clears bool) (*cached, error) {
	c := &cached{
		lent:      lent{Name: name},
		allocator: cachingsim.New(cachingsim.Config{Expandable: expandable, History: true}),
		clears:    clears, resident: resident,
	}
	err := c.allocateResident()
	if err == nil {
		c.device, err = newDriver(mostReserved)
	}
	return c, err
}

// round replays a step, lends memory and takes it back.
func (c *cached) round(events []event) error {
	if err := errors.Join(c.step(events), c.release()); err != nil {
		return err
	}
	stats := c.allocator.Stats()
	c.lent.Allocated, c.lent.Reserved = stats.Allocated.Current, stats.Reserved.Current
	if err := c.allocateResident(); err != nil {
		return err
	}
	history := c.allocator.Snapshot().Traces[0]
	took, err := c.device.run(history[c.executed:])
	c.executed, c.took = len(history), append(c.took, took)
	return err
}

// malloc allocates a block and returns its address.
func (c *cached) malloc(bytes int64) (int64, error) {
	return c.allocator.Malloc(cachingsim.Request{Bytes: bytes})
}

// mallocs allocates several blocks and returns their addresses.
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

// allocateResident allocates weights, gradients and moments, as a model does when it is loaded again.
func (c *cached) allocateResident() (err error) {
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
			if copies++; copies > len(c.copies) { // otherwise the module still has the copy of the previous step
				err = c.allocateCopy(e.Bytes)
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

// allocateCopy allocates a copy of a weight, and in the first step its scale and history.
func (c *cached) allocateCopy(bytes int64) error {
	address, err := c.malloc(bytes)
	c.copies = append(c.copies, address)
	if err == nil && len(c.copies) > c.scaled {
		c.scaled++
		_, err = c.mallocs(scale, history/2) // two copies share a layer
	}
	return err
}

// release releases weights, gradients and moments, clears the copies if configured, and empties
// the cache, as a framework does before it lends its memory.
func (c *cached) release() error {
	addresses := c.addresses
	c.addresses = nil
	if c.clears {
		addresses = append(addresses, c.copies...)
		c.copies = nil
	}
	for _, address := range addresses {
		if err := c.allocator.Free(address); err != nil {
			return err
		}
	}
	c.allocator.EmptyCache()
	return nil
}
