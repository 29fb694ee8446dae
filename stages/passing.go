package stages

import (
	batchctx "github.com/weir-ml/weir/context"
)

// passing is what a decorator passes from one call of its children to the next.
// Between the calls the step holds it, as it holds what passes between stages:
// what is missing, ended or not the child's to return is refused at once.
type passing[T any] struct {
	handles []T
	none    uint64 // ports without a tensor
	held    int    // how many of the handles the step holds, from the first on
	lent    bool   // to a child that has not come back with all of them
}

// newPassing returns a place for what goes through the ports, as gradients or not.
func newPassing[T any](ports []Port, gradients bool) passing[T] {
	p := passing[T]{handles: make([]T, len(ports))}
	for i, port := range ports {
		if gradients && port.NoGrad {
			p.none |= 1 << i
		}
	}
	return p
}

// open gives a child the place to fill.
func (p *passing[T]) open() []T {
	p.lent = true
	return p.handles
}

// hold hands over what the child has returned.
func (p *passing[T]) hold(mb batchctx.Microbatch[T]) {
	for i, h := range p.handles {
		if p.none>>i&1 == 0 {
			mb.Hold(h)
		}
		p.held = i + 1
	}
	p.lent = false
}

// drop ends what is held.
func (p *passing[T]) drop(mb batchctx.Microbatch[T]) {
	for p.held > 0 {
		p.held--
		if p.none>>p.held&1 == 0 {
			mb.Drop(p.handles[p.held])
		}
	}
	clear(p.handles)
}

// dropHolding ends what is held while the step holds result, which may be the same
// tensor retained: a child that returns its input hands it on, and does not keep it.
func (p *passing[T]) dropHolding(mb batchctx.Microbatch[T], result []T, none uint64) {
	held := 0
	defer func() {
		for i, h := range result[:held] {
			if none>>i&1 == 0 {
				mb.Yield(h)
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

// abandon ends what a call left on its way out: what is held, and what a child
// had put there before it failed.
func (p *passing[T]) abandon(mb batchctx.Microbatch[T]) {
	if p.lent {
		for _, h := range p.handles[p.held:] {
			mb.Abandon(h, false) // most are none
		}
		p.lent = false
	}
	for p.held > 0 {
		p.held--
		if p.none>>p.held&1 == 0 {
			mb.Abandon(p.handles[p.held], true)
		}
	}
	clear(p.handles)
}
