package memory

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// saved is what ReleasePages wrote and RestorePages reads back: the bytes of buffers,
// one after the other.
type saved struct {
	buffers []savedBuffer
	sum     checksum
}

type savedBuffer struct {
	handle Handle
	bytes  int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32 (Castagnoli) of what was written to it.
type checksum uint32

func (c *checksum) Write(p []byte) (int, error) {
	*c = checksum(crc32.Update(uint32(*c), castagnoli, p))
	return len(p), nil
}

// ReleasePages hands back the pages of the scopes, and keeps the addresses; see [Scoped].
// A scope that is released already stays so.
func (a *Arena) ReleasePages(w io.Writer, scopes ...Scope) error {
	if a.closed {
		return fmt.Errorf("%w: ReleasePages", ErrClosed)
	}
	var going [NumScopes]bool
	var keep []Scope
	for _, scope := range scopes {
		if int(scope) >= NumScopes {
			return fmt.Errorf("memory: ReleasePages of unknown scope %d", scope)
		}
		if a.regions[scope].released || going[scope] {
			continue
		}
		going[scope] = true
		if !scope.lost() && a.regions[scope].live > 0 {
			keep = append(keep, scope)
		}
	}
	if l := &a.laid; l.layout != nil {
		return fmt.Errorf("%w: ReleasePages at place %d of a step: end it first", ErrLive, l.place)
	}
	if err := a.idle("ReleasePages"); err != nil {
		return err
	}
	if len(keep) > 0 {
		if w == nil {
			return fmt.Errorf("memory: ReleasePages of %s without a writer: only step and gradients may be lost between steps", keep[0])
		}
		if a.saved.buffers != nil {
			return fmt.Errorf("%w: ReleasePages of %s: what an earlier call wrote was not read back yet", ErrReleased, keep[0])
		}
		if err := a.save(w, keep); err != nil {
			return err
		}
	}
	var runs []span
	for scope := range Scope(NumScopes) {
		if going[scope] {
			runs = append(runs, a.runs(scope, true)...)
		}
	}
	var faults []error
	for _, run := range without(runs, nil) { // neighbours of different scopes go together, huge pages and all
		if err := a.discardRun(run); err != nil {
			faults = append(faults, fmt.Errorf("memory: ReleasePages of %v: the system does not take %d bytes back: %w", scopes, run.size, err))
		}
	}
	for scope := Scope(NumScopes); scope > 0; { // StepScope last: what is free and has pages then is poisoned
		scope--
		if going[scope] {
			a.gone(scope)
		}
	}
	return errors.Join(faults...)
}

// gone enters that the pages of a scope are released.
func (a *Arena) gone(scope Scope) {
	switch scope {
	case StepScope: // has no buffers, and new ones get new pages
		l := &a.laid
		l.most = max(l.most, l.present, a.low)
		l.held, l.present = max(l.held, a.low), 0
		a.low = a.residentBelow(a.low)
		if a.examined() {
			a.poisonFree()
		}
		return
	case Weights: // nobody is to be placed in gaps without pages
		var above spans
		for _, f := range a.free {
			if start := max(f.off, a.high); start < f.off+f.size {
				above = append(above, span{start, f.off + f.size - start})
			}
		}
		for _, f := range above {
			a.free.takeAt(f.off, f.size)
		}
		a.regions[Weights].free = above
	}
	a.regions[scope].released = true
	a.released++
}

// back enters that the pages of all scopes are there again.
func (a *Arena) back() {
	l := &a.laid
	if l.held > 0 {
		l.present = max(l.present, a.paged(l.held))
		a.low = max(a.low, min(l.held, a.high))
		l.held = 0
	}
	if a.examined() {
		a.poisonBack()
	}
	for i := range a.regions {
		a.regions[i].released = false
		if Scope(i) != Weights {
			a.shrink(Scope(i))
		}
	}
	for _, f := range a.regions[Weights].free {
		a.free.give(f.off, f.size)
	}
	a.regions[Weights].free = nil
	a.released, a.saved = 0, saved{}
	if a.examined() {
		a.poisonFree()
	}
}

// save writes the buffers of the scopes, in the order of their allocation.
func (a *Arena) save(w io.Writer, scopes []Scope) error {
	var out saved
	for info := range a.All() {
		s := &a.slots[info.Handle.slot]
		if !slices.Contains(scopes, s.scope) {
			continue
		}
		if err := a.writeTo(io.MultiWriter(w, &out.sum), s); err != nil {
			return fmt.Errorf("memory: ReleasePages writes %s, and released nothing: %w", s.scope, err)
		}
		out.buffers = append(out.buffers, savedBuffer{info.Handle, s.bytes})
	}
	a.saved = out
	return nil
}

// RestorePages takes back what ReleasePages released; see [Scoped].
func (a *Arena) RestorePages(r io.Reader) error {
	switch {
	case a.closed:
		return fmt.Errorf("%w: RestorePages", ErrClosed)
	case a.released == 0 && a.laid.held == 0:
		return nil
	case r == nil && a.saved.buffers != nil:
		return fmt.Errorf("%w: RestorePages without a reader, and ReleasePages wrote %d buffers", ErrSaved, len(a.saved.buffers))
	}
	var runs []span
	for scope := range Scope(NumScopes) {
		if a.regions[scope].released || scope == StepScope && a.laid.held > 0 {
			runs = append(runs, a.runs(scope, false)...)
		}
	}
	runs = without(runs, nil) // neighbours of different scopes are one run, with room for huge pages
	for i, run := range runs {
		err := a.commit(run.off, run.off+run.size)
		if err == nil {
			err = a.populate(run.off, run.off+run.size)
		}
		if err != nil {
			a.discard(runs[:i+1])
			return fmt.Errorf("%w: RestorePages: the system does not supply %d bytes: %w", ErrOutOfMemory, run.size, err)
		}
	}
	if err := a.load(r); err != nil {
		a.discard(runs)
		return err
	}
	a.back()
	return nil
}

// discard hands pages back again that are of no use without the others.
func (a *Arena) discard(runs []span) {
	for _, run := range runs {
		_ = a.discardRun(run) // The first error is the one to tell.
	}
}

// load reads what save wrote. Buffers that were released since are skipped.
func (a *Arena) load(r io.Reader) error {
	var sum checksum
	for _, b := range a.saved.buffers {
		if err := a.readFrom(io.TeeReader(r, &sum), a.lookup(b.handle), b.bytes); err != nil {
			return fmt.Errorf("%w: RestorePages reads a buffer of %d bytes: %w", ErrSaved, b.bytes, err)
		}
	}
	if sum != a.saved.sum {
		return fmt.Errorf("%w: its checksum is %08x, want %08x", ErrSaved, sum, a.saved.sum)
	}
	return nil
}

// runs returns the runs of whole pages that belong to a scope: those of its extents; for
// Weights what its buffers lie on, and all above the high mark where no step has been; for
// StepScope what steps have touched, since their pages were last released or ever,
// without what Weights lie on.
func (a *Arena) runs(scope Scope, ever bool) []span {
	l := &a.laid
	step := max(a.low, l.area, l.present, l.held)
	switch scope {
	case StepScope:
		if ever {
			step = max(step, l.most)
		}
		return without([]span{{0, min(a.paged(step), a.capacity)}}, slices.Concat(a.weights(), a.extents()))
	case Weights:
		start := max(a.high&^(a.page-1), min(a.paged(max(step, l.most)), a.capacity))
		return without(append(a.weights(), span{start, a.capacity - start}), a.extents())
	}
	var runs []span
	for _, e := range a.regions[scope].extents {
		runs = append(runs, e.span)
	}
	return runs
}

// weights returns the pages on which buffers of Weights lie. Neighbours may share one.
func (a *Arena) weights() []span {
	var pages []span
	for i := range a.slots {
		if s := &a.slots[i]; s.live() && s.scope == Weights {
			off := s.off &^ (a.page - 1)
			pages = append(pages, span{off, min(a.paged(s.off+a.size(s)), a.capacity) - off})
		}
	}
	return pages
}

// extents returns the pages of all extents, with their guards.
func (a *Arena) extents() []span {
	var pages []span
	for i := range a.regions {
		for _, e := range a.regions[i].extents {
			pages = append(pages, e.outer())
		}
	}
	return pages
}

// without joins runs and takes holes out of them.
func without(runs, holes []span) []span {
	byOffset := func(x, y span) int { return cmp.Compare(x.off, y.off) }
	slices.SortFunc(runs, byOffset)
	var joined []span
	for _, run := range runs {
		if n := len(joined); n > 0 && joined[n-1].off+joined[n-1].size >= run.off {
			last := &joined[n-1]
			last.size = max(last.size, run.off+run.size-last.off)
		} else {
			joined = append(joined, run)
		}
	}
	slices.SortFunc(holes, byOffset)
	for _, hole := range holes {
		var left []span
		for _, run := range joined {
			if end := min(run.off+run.size, hole.off); end > run.off {
				left = append(left, span{run.off, end - run.off})
			}
			if start, end := max(run.off, hole.off+hole.size), run.off+run.size; start < end {
				left = append(left, span{start, end - start})
			}
		}
		joined = left
	}
	return slices.DeleteFunc(joined, func(run span) bool { return run.size == 0 })
}

// residentBelow returns the highest end of a Resident buffer below a mark, 0 where there
// is none: pages there are not a step's.
func (a *Arena) residentBelow(mark int64) int64 {
	var end int64
	for i := range a.slots {
		if s := &a.slots[i]; s.live() && s.off < mark {
			end = max(end, min(s.off+a.size(s), mark))
		}
	}
	for i := range a.regions {
		for _, e := range a.regions[i].extents {
			if outer := e.outer(); outer.off < mark {
				end = max(end, min(outer.off+outer.size, mark))
			}
		}
	}
	return end
}
