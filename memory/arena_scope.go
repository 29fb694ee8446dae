package memory

import (
	"fmt"
	"slices"
)

// region is the part of an arena's range that a resident scope has: extents of whole
// pages, and buffers within them. Weights has no extents: its buffers lie one below the
// other at the top of the range, as those of class Resident always have.
type region struct {
	extents  []extent
	free     spans // within them; of Weights while it is released: what nobody has
	live     int64 // bytes of the scope's buffers
	released bool
}

// extent is a run of pages of one region.
type extent struct {
	span
	guard int64 // bytes on either side that nobody may touch, under -tags invariants
}

// outer returns the extent with its guards.
func (e extent) outer() span { return span{e.off - e.guard, e.size + 2*e.guard} }

// slab is the least extent of Metadata in bytes, so that its small tables lie together.
const slab = 64 << 10

// AllocIn returns a buffer of class Resident on pages of its scope, with one plain
// reference, the caller's. Its content is undefined. Alloc of class Resident is AllocIn
// of Weights. The errors are those of Alloc.
func (a *Arena) AllocIn(scope Scope, bytes int64) (Handle, error) {
	return a.allocIn(scope, Resident, bytes)
}

// allocIn is AllocIn for any Lasting class.
func (a *Arena) allocIn(scope Scope, class Class, bytes int64) (Handle, error) {
	switch {
	case scope == StepScope || int(scope) >= NumScopes:
		return Handle{}, fmt.Errorf("memory: AllocIn of %d bytes in scope %s: want a resident scope", bytes, scope)
	case bytes <= 0 || bytes > a.capacity || a.closed:
		return Handle{}, a.refusal(class, bytes)
	case scope == Weights:
		return a.fit(Resident, bytes)
	}
	r := &a.regions[scope]
	if r.released {
		return Handle{}, fmt.Errorf("%w: AllocIn of %d bytes in scope %s: RestorePages first", ErrReleased, bytes, scope)
	}
	size := a.footprint(bytes)
	off, ok := r.free.takeLow(size)
	if !ok {
		if err := a.extend(scope, size); err != nil {
			return Handle{}, err
		}
		off, _ = r.free.takeLow(size)
	}
	if a.examined() {
		if err := a.stale(a.pages.mem[off:off+size], poisoned); err != nil {
			r.free.give(off, size)
			return Handle{}, err
		}
	}
	h := a.enter(class, off, bytes)
	a.resident(h, scope)
	return h, nil
}

// resident enters a new buffer in its scope.
func (a *Arena) resident(h Handle, scope Scope) {
	s := &a.slots[h.slot]
	s.scope = scope
	a.regions[scope].live += s.bytes
}

// extend adds an extent for size bytes to a region.
func (a *Arena) extend(scope Scope, size int64) error {
	r := &a.regions[scope]
	least := a.paged(size)
	wishes := []extent{{span: span{size: least}}}
	if scope == Metadata {
		wishes = append([]extent{{span: span{size: max(least, slab)}}}, wishes...)
	}
	if a.examined() {
		wishes = append([]extent{{span{size: wishes[0].size}, a.page}}, wishes...)
	}
	for _, e := range wishes {
		outer := e.outer().size
		off, ok := a.free.takeHighAligned(outer, a.page)
		if !ok {
			continue
		}
		e.off = off + e.guard
		var err error
		if off < a.high {
			err = a.touch(Resident, off, outer)
		} else if err = a.commit(off, off+outer); err != nil {
			err = fmt.Errorf("%w: the system does not commit %d bytes: %w", ErrOutOfMemory, outer, err)
		}
		if err != nil {
			a.free.give(off, outer)
			return err
		}
		a.guard(e, false)
		r.extents = append(r.extents, e)
		r.free.give(e.off, e.size)
		return nil
	}
	return a.refusal(Resident, size)
}

// leave makes the place of a Resident buffer free. While the pages are released it stays
// the region's own.
func (a *Arena) leave(scope Scope, off, size int64) {
	r := &a.regions[scope]
	switch {
	case scope == Weights && !r.released:
		a.free.give(off, size)
	default:
		r.free.give(off, size)
		a.shrink(scope)
	}
}

// shrink gives extents back to the range in which nothing is left.
func (a *Arena) shrink(scope Scope) {
	r := &a.regions[scope]
	if r.released {
		return
	}
	r.extents = slices.DeleteFunc(r.extents, func(e extent) bool {
		empty := r.free.takeAt(e.off, e.size)
		if empty {
			a.guard(e, true)
			a.rejoin(e.outer())
		}
		return empty
	})
}

// rejoin gives whole pages back to the range. While Weights is released they go the way of
// all that nobody has there.
func (a *Arena) rejoin(s span) {
	w := &a.regions[Weights]
	if !w.released {
		a.free.give(s.off, s.size)
		return
	}
	a.discard([]span{s})
	w.free.give(s.off, s.size)
}

// Scope returns what a scope has. Pages of StepScope are counted wherever steps have ever
// been, those of the others where they are.
func (a *Arena) Scope(scope Scope) ScopeStats {
	if a.closed || int(scope) >= NumScopes {
		return ScopeStats{}
	}
	r := &a.regions[scope]
	s := ScopeStats{Live: r.live, Reserved: a.reserved(scope)}
	if scope == StepScope {
		s.Live = a.meter.live - a.lasting()
	}
	s.Reserved = max(s.Reserved, s.Live)
	if r.released {
		s.Released, s.Live, s.Reserved = s.Live, 0, 0
	}
	for _, run := range a.runs(scope, true) {
		n := a.present(run)
		if n < 0 {
			s.Pages = -1
			break
		}
		s.Pages += n
	}
	return s
}

// reserved returns the bytes of the range that a scope has, with pages or without.
func (a *Arena) reserved(scope Scope) int64 {
	var extents int64
	for i := range a.regions {
		for _, e := range a.regions[i].extents {
			switch scope {
			case Scope(i):
				extents += e.size
			case Weights:
				extents -= e.outer().size
			}
		}
	}
	switch scope {
	case StepScope:
		return a.low
	case Weights:
		return max(0, a.capacity-a.high+extents)
	}
	return extents
}
