package layout

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// This file counts the references to allocations, and plays step end.

// end releases the allocations in a slot.
func (p *player) end(w slot) error {
	for _, i := range p.held[w].allocations {
		if i >= 0 {
			if err := p.release(i); err != nil {
				return err
			}
		}
	}
	if w.kind > effects.Saved {
		delete(p.held, w)
	}
	return nil
}

// dropParts releases parts of an entry.
func (p *player) dropParts(w slot, set uint64) error {
	e := p.held[w]
	for part, i := range e.allocations {
		if set&e.wanted>>part&1 == 1 && i >= 0 {
			if err := p.release(i); err != nil {
				return err
			}
		}
	}
	if e.wanted &^= set; e.wanted == 0 {
		delete(p.held, w)
	} else {
		p.held[w] = e
	}
	return nil
}

// finish plays step end. It pulls the entries that no action pulled, and plays the transfers of the
// gradients of tied parameters between ranks, one after the other.
func (p *player) finish() error {
	if !p.pullsNothing() {
		if err := p.pull(p.plan.Microbatches - 1); err != nil {
			return err
		}
	}
	if p.plan.Mode == schedule.ForwardOnly || p.far || p.replicas > 1 {
		return nil
	}
	rank := p.plan.Placement.Rank
	_, ties := effects.Ties(len(rank), p.profile.trained)
	for back := range 2 { // first the owners receive gradients, then the uses receive totals
		for _, tie := range ties {
			to, from := tie.Owner, tie.Use
			if back == 1 {
				to, from = from, to
			}
			if rank[to.Stage] != p.rank || rank[from.Stage] == p.rank {
				continue
			}
			bytes := p.profile.params(from.Stage)[from.Param].Bytes
			i, err := p.allocate(bytes, false, memory.Transfer, origin{kind: ofTiedUse, stage: int32(to.Stage), microbatch: -1, index: int32(to.Param)})
			if err != nil {
				return err
			}
			if err := p.release(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullsNothing reports whether the rank reads no part of any entry, and its source allocates nothing
// for an entry without parts.
func (p *player) pullsNothing() bool {
	for i := range p.profile.Shapes {
		if e := p.profile.Shapes[i].entry(0); e != nil && len(e.Events) > 0 {
			return false
		}
	}
	return !slices.ContainsFunc(p.wants, func(parts uint64) bool { return parts != 0 })
}

// checkReleased returns an error if an allocation is still alive.
func (p *player) checkReleased() error {
	for i := range p.allocations {
		if it := &p.allocations[i]; it.refs > 0 {
			return fmt.Errorf("%w: rank %d: %s of microbatch %d is never released", ErrProfile, p.rank, p.profile.name(it.origin, p.shape(int(it.origin.microbatch))), it.origin.microbatch)
		}
	}
	return nil
}

// allocate creates an allocation with one reference.
func (p *player) allocate(bytes int64, atMost bool, class memory.Class, o origin) (int32, error) {
	i := int32(len(p.allocations))
	if len(p.allocations) >= p.limit {
		return 0, p.tooLong()
	}
	if i == int32(cap(p.allocations)) {
		p.allocations = slices.Grow(p.allocations, len(p.allocations)+256)
	}
	p.allocations = append(p.allocations, allocation{
		bytes: bytes, atMost: atMost, class: class, refs: 1, birth: p.count, position: p.at, ordinal: p.ordinal, inRepeat: p.count - p.repeatStart, origin: o,
	})
	p.ordinal++
	p.record(i)
	return i, nil
}

func (p *player) tooLong() error {
	return fmt.Errorf("%w: rank %d allocates more than %d times before its program repeats itself, since what it keeps grows with microbatches; take a schedule whose microbatches in flight do not, such as 1f1b, or fewer microbatches", ErrTooLong, p.rank, p.limit)
}

// release removes a reference. The allocation dies with its last reference.
func (p *player) release(i int32) error {
	it := &p.allocations[i]
	if it.refs <= 0 {
		return fmt.Errorf("%w: %s of microbatch %d is released once more than it is retained", ErrProfile, p.profile.name(it.origin, p.shape(int(it.origin.microbatch))), it.origin.microbatch)
	}
	if it.refs--; it.refs == 0 {
		it.death = p.count
		p.record(^i)
	}
	return nil
}

// record logs a change: the number of the allocation for a birth, its complement for a death.
func (p *player) record(change int32) {
	p.count++
	if p.emit != nil {
		p.emit(change)
	} else {
		if len(p.log) == cap(p.log) {
			p.log = slices.Grow(p.log, len(p.log)+512)
		}
		p.log = append(p.log, change)
	}
	if p.skip != nil {
		p.skip.record(p, change)
	}
}
