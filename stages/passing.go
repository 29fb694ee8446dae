package stages

import (
	batchctx "github.com/weir-ml/weir/context"
)

// passing stores the tensors that a decorator passes from one call of its children to the next. Between
// the calls the step holds them, as it holds tensors between stages, so an output that is missing,
// released or only borrowed by the child is reported immediately.
type passing[T any] struct {
	handles []T
	none    uint64 // bit i is set if port i has no tensor
	held    int    // the step holds handles[:held]
	lent    bool   // handles are lent to a child, and the step does not hold all of its results yet
}

// newPassing returns a passing for the given ports, as gradients or as values.
func newPassing[T any](ports []Port, gradients bool) passing[T] {
	p := passing[T]{handles: make([]T, len(ports))}
	for i, port := range ports {
		if gradients && port.NoGrad {
			p.none |= 1 << i
		}
	}
	return p
}

// open returns the slice for a child to fill.
func (p *passing[T]) open() []T {
	p.lent = true
	return p.handles
}

// hold takes over the tensors that the child has returned.
func (p *passing[T]) hold(mb batchctx.Microbatch[T]) {
	for i, h := range p.handles {
		if p.none>>i&1 == 0 {
			mb.Hold(h)
		}
		p.held = i + 1
	}
	p.lent = false
}

// drop releases the held tensors.
func (p *passing[T]) drop(mb batchctx.Microbatch[T]) {
	for p.held > 0 {
		p.held--
		if p.none>>p.held&1 == 0 {
			mb.Drop(p.handles[p.held])
		}
	}
	clear(p.handles)
}

// dropHolding releases the held tensors while the step holds result, which may contain the same tensors,
// retained. Otherwise the books would report a tensor that a child returns unchanged as a leak.
func (p *passing[T]) dropHolding(mb batchctx.Microbatch[T], result []T, none uint64) {
	held := 0
	defer func() {
		for i, h := range result[:held] {
			if none>>i&1 == 0 {
				mb.Unhold(h)
			}
		}
	}()
	for ; held < len(result); held++ {
		if none>>held&1 == 0 {
			mb.Hold(result[held])
		}
	}
	p.drop(mb)
}

// abandon releases the tensors that a failed call has left behind: the held ones, and the outputs of a
// child that failed.
func (p *passing[T]) abandon(mb batchctx.Microbatch[T]) {
	if p.lent {
		for _, h := range p.handles[p.held:] {
			mb.ReleaseAfterFailure(h, false) // most are zero
		}
		p.lent = false
	}
	for p.held > 0 {
		p.held--
		if p.none>>p.held&1 == 0 {
			mb.ReleaseAfterFailure(p.handles[p.held], true)
		}
	}
	clear(p.handles)
}
