package layout

import (
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// This file counts the references to allocations, and executes step end.

// end releases the allocations in a slot, and deletes the slot unless later calls may refer to it.
func (t *trace) end(w slot) error {
	for _, i := range t.held[w].allocations {
		if i >= 0 {
			if err := t.release(i); err != nil {
				return err
			}
		}
	}
	if w.kind > effects.Saved {
		delete(t.held, w)
	}
	return nil
}

// dropParts releases parts of an entry.
func (t *trace) dropParts(w slot, set uint64) error {
	e := t.held[w]
	for part, i := range e.allocations {
		if set&e.wanted>>part&1 == 1 && i >= 0 {
			if err := t.release(i); err != nil {
				return err
			}
		}
	}
	if e.wanted &^= set; e.wanted == 0 {
		delete(t.held, w)
	} else {
		t.held[w] = e
	}
	return nil
}

// finish executes step end. It pulls the entries that no action has pulled. In training with one replica,
// it then executes the transfers of tied parameters' gradients between ranks, one after the other.
func (t *trace) finish() error {
	if !t.pullsNothing() {
		if err := t.pull(t.plan.Microbatches - 1); err != nil {
			return err
		}
	}
	if t.plan.Mode == schedule.ForwardOnly || t.far || t.cfg.Replicas > 1 {
		return nil
	}
	rank := t.plan.Placement.Rank
	_, ties := effects.Ties(len(rank), t.profile.trained)
	for back := range 2 { // first the owners receive gradients, then the other uses receive the totals
		for _, tie := range ties {
			to, from := tie.Owner, tie.Use
			if back == 1 {
				to, from = from, to
			}
			if rank[to.Stage] != t.rank || rank[from.Stage] == t.rank {
				continue
			}
			bytes := t.profile.params(from.Stage)[from.Param].Bytes
			i, err := t.allocate(bytes, false, memory.Transfer, origin{kind: ofTiedUse, stage: int32(to.Stage), microbatch: -1, index: int32(to.Param)})
			if err != nil {
				return err
			}
			if err := t.release(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullsNothing reports whether the rank reads no part of any entry, and its source allocates nothing
// for an entry without parts.
func (t *trace) pullsNothing() bool {
	for i := range t.profile.Shapes {
		if e := t.profile.Shapes[i].entry(0); e != nil && len(e.Events) > 0 {
			return false
		}
	}
	return !slices.ContainsFunc(t.wants, func(parts uint64) bool { return parts != 0 })
}

// checkReleased returns an error if an allocation is still alive.
func (t *trace) checkReleased() error {
	for i := range t.allocations {
		if it := &t.allocations[i]; it.refs > 0 {
			return diagnostic.Errorf(ErrProfile, "rank %d: %s of microbatch %d is never released", t.rank, t.profile.name(it.origin, t.shape(int(it.origin.microbatch))), it.origin.microbatch)
		}
	}
	return nil
}

// allocate creates an allocation with one reference.
func (t *trace) allocate(bytes int64, atMost bool, class memory.Class, o origin) (int32, error) {
	i := int32(len(t.allocations))
	if len(t.allocations) >= t.limit {
		return 0, t.tooLong()
	}
	if i == int32(cap(t.allocations)) {
		t.allocations = slices.Grow(t.allocations, len(t.allocations)+256)
	}
	now := int32(len(t.log))
	t.allocations = append(t.allocations, allocation{
		bytes: bytes, atMost: atMost, class: class, refs: 1, birth: now, position: t.at, ordinal: t.ordinal, inRepeat: now - t.repeatStart, origin: o,
	})
	t.ordinal++
	t.record(i)
	return i, nil
}

func (t *trace) tooLong() error {
	return diagnostic.Errorf(ErrTooLong, "rank %d allocates more than %d times before its program repeats itself, because the number of microbatches in flight grows; use a schedule that bounds it, such as 1f1b, or fewer microbatches", t.rank, t.limit)
}

// release removes a reference. The allocation dies with its last reference.
func (t *trace) release(i int32) error {
	it := &t.allocations[i]
	if it.refs <= 0 {
		return diagnostic.Errorf(ErrProfile, "%s of microbatch %d is released once more than it is retained", t.profile.name(it.origin, t.shape(int(it.origin.microbatch))), it.origin.microbatch)
	}
	if it.refs--; it.refs == 0 {
		it.death = int32(len(t.log))
		t.record(^i)
	}
	return nil
}

// record logs a change: the allocation's number for a birth, the complement of the number for a death.
func (t *trace) record(change int32) {
	if len(t.log) == cap(t.log) {
		t.log = slices.Grow(t.log, len(t.log)+512)
	}
	t.log = append(t.log, change)
	if t.recurrence != nil {
		t.recurrence.record(t, change)
	}
}
