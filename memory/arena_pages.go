package memory

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
)

// region is the part of the range that belongs to a resident scope: extents of whole pages, which contain
// its buffers. Weights has no extents: its buffers are stacked downwards from the top of the range.
type region struct {
	extents  []extent
	free     spans // within the extents; for Weights, its gaps while its pages are released
	live     int64 // bytes of the scope's buffers
	released bool
}

// extent is a run of pages of one region.
type extent struct {
	span
	guard int64 // protected bytes on either side, under -tags invariants
}

// outer returns the extent with its guards.
func (e extent) outer() span { return span{e.off - e.guard, e.size + 2*e.guard} }

// slab is the minimum size of an extent of Metadata in bytes, so that its small tables are adjacent. If the
// arena has no room for it, the extent is as small as possible.
const slab = 64 << 10

// AllocIn returns a buffer of class Resident on pages of its scope, with one plain reference, owned by
// the caller. Its contents are undefined. Alloc with class Resident is the same as AllocIn with Weights.
// AllocIn returns the same errors as Alloc, and an error for StepScope or an unknown scope.
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
		return Handle{}, fmt.Errorf("%w: AllocIn of %d bytes in scope %s: call RestorePages first", ErrReleased, bytes, scope)
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

// resident adds a new buffer to its scope.
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
			err = fmt.Errorf("%w: the system cannot commit %d bytes: %w", ErrOutOfMemory, outer, err)
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

// shrink returns the empty extents of a region to the range. While the pages of Weights are released, the
// pages of these extents are discarded too.
func (a *Arena) shrink(scope Scope) {
	r, w := &a.regions[scope], &a.regions[Weights]
	if r.released {
		return
	}
	r.extents = slices.DeleteFunc(r.extents, func(e extent) bool {
		if !r.free.takeAt(e.off, e.size) {
			return false
		}
		a.guard(e, true)
		outer := e.outer()
		if w.released {
			a.discard([]span{outer})
			w.free.give(outer.off, outer.size)
		} else {
			a.free.give(outer.off, outer.size)
		}
		return true
	})
}

// Scope returns the statistics of a scope, or zeros after Close and for an unknown scope. For StepScope,
// Pages counts the present ones of all pages that steps have ever touched.
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
		var n int64
		if a.far != nil {
			n = a.far.Present(run.off, run.off+run.size)
		} else if n = kernelBytes(a.pages.mem[run.off : run.off+run.size]); n < 0 { // unknown
			s.Pages = -1
			break
		}
		s.Pages += n
	}
	return s
}

// reserved returns the number of bytes of the range that belong to a scope, with pages or without.
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

// saved describes the stream that ReleasePages wrote and RestorePages reads: the contents of
// buffers, one after the other.
type saved struct {
	buffers []savedBuffer
	sum     uint32 // CRC-32 (Castagnoli)
}

type savedBuffer struct {
	handle Handle
	bytes  int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ReleasePages discards the pages of the scopes and keeps their addresses; see [Scoped].
// A scope that is released already stays released.
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
			return fmt.Errorf("%w: ReleasePages of %s: the output of an earlier call was not read back yet", ErrReleased, keep[0])
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
	for _, run := range without(runs, nil) { // discard adjacent runs of different scopes together, so that huge pages are discarded whole
		if err := a.discardRun(run); err != nil {
			faults = append(faults, fmt.Errorf("memory: ReleasePages of %v: the system cannot take back %d bytes: %w", scopes, run.size, err))
		}
	}
	for scope := Scope(NumScopes); scope > 0; { // StepScope last, because it poisons the free bytes that still have pages
		scope--
		if going[scope] {
			a.markReleased(scope)
		}
	}
	return errors.Join(faults...)
}

// markReleased records that the pages of a scope are released.
func (a *Arena) markReleased(scope Scope) {
	switch scope {
	case StepScope: // it has no buffers, and new ones get new pages
		l := &a.laid
		l.most = max(l.most, l.present, a.low)
		l.held, l.present = max(l.held, a.low), 0
		a.low = a.residentBelow(a.low)
		if a.examined() {
			a.poisonFree()
		}
		return
	case Weights: // no buffer may be placed in a gap without pages
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

// markRestored records that the pages of all scopes are present again.
func (a *Arena) markRestored() {
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

// RestorePages reclaims the pages that ReleasePages discarded; see [Scoped].
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
	runs = without(runs, nil) // merge adjacent runs of different scopes, so that huge pages fit
	for i, run := range runs {
		err := a.commit(run.off, run.off+run.size)
		if err == nil {
			err = a.populate(run.off, run.off+run.size)
		}
		if err != nil {
			a.discard(runs[:i+1])
			return fmt.Errorf("%w: RestorePages: the system cannot populate %d bytes: %w", ErrOutOfMemory, run.size, err)
		}
	}
	if err := a.load(r); err != nil {
		a.discard(runs)
		return err
	}
	a.markRestored()
	return nil
}

// discard discards runs whose pages are no longer needed.
func (a *Arena) discard(runs []span) {
	for _, run := range runs {
		_ = a.discardRun(run) // if this fails, the pages stay until Close
	}
}

// runs returns the runs of whole pages that belong to a scope. For StepScope, these are the pages that
// steps have touched since the pages were last released (if ever is set, since the arena was made), except
// the pages of Weights and all extents. For Weights, they are the pages of its buffers, and all pages above
// the high-water mark that no step has touched, except the extents. For other scopes, they are the extents.
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

// weights returns the pages of each buffer of Weights. Adjacent buffers may share a page.
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

// without merges runs and removes the holes from them.
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

// residentBelow returns the highest end, but at most mark, of the live buffers and extents that begin below
// mark, or 0 if there are none. No buffer of a step may be live.
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

// idle returns ErrLive, with the owners, if a buffer of a step is live.
func (a *Arena) idle(call string) error {
	if a.meter.live == a.lasting() {
		return nil
	}
	const most = 4
	var owners []string
	var count int
	for info := range a.All() {
		if info.Class.Lasting() {
			continue
		}
		if count++; count <= most {
			owners = append(owners, fmt.Sprintf("%d bytes (%s; %d plain, %d held; allocation %d)", info.Bytes, info.Class, info.Plain, info.Held, info.Serial))
		}
	}
	if count > most {
		owners = append(owners, fmt.Sprintf("%d more", count-most))
	}
	return fmt.Errorf("%w: %s: %s", ErrLive, call, strings.Join(owners, ", "))
}

// lasting returns the bytes of all buffers that belong to no step.
func (a *Arena) lasting() int64 { return a.meter.classes[Resident] + a.meter.classes[Loss] }

// save writes the contents of the scopes' buffers, in allocation order.
func (a *Arena) save(w io.Writer, scopes []Scope) error {
	var out saved
	sum := crc32.New(castagnoli)
	for info := range a.All() {
		s := &a.slots[info.Handle.slot]
		if !slices.Contains(scopes, s.scope) {
			continue
		}
		if err := a.writeTo(io.MultiWriter(w, sum), s); err != nil {
			return fmt.Errorf("memory: ReleasePages writes %s, and released nothing: %w", s.scope, err)
		}
		out.buffers = append(out.buffers, savedBuffer{info.Handle, s.bytes})
	}
	out.sum = sum.Sum32()
	a.saved = out
	return nil
}

// load reads the stream that save wrote into the buffers, and returns ErrSaved if it is another one. It
// skips buffers that have been freed since.
func (a *Arena) load(r io.Reader) error {
	sum := crc32.New(castagnoli)
	for _, b := range a.saved.buffers {
		if err := a.readFrom(io.TeeReader(r, sum), a.lookup(b.handle), b.bytes); err != nil {
			return fmt.Errorf("%w: RestorePages reads a buffer of %d bytes: %w", ErrSaved, b.bytes, err)
		}
	}
	if sum.Sum32() != a.saved.sum {
		return fmt.Errorf("%w: its checksum is %08x, want %08x", ErrSaved, sum.Sum32(), a.saved.sum)
	}
	return nil
}

// farChunk is the largest number of bytes that one copy moves from or to a far range.
const farChunk = 1 << 20

// writeTo writes the bytes of a buffer.
func (a *Arena) writeTo(w io.Writer, s *slot) error {
	if a.far == nil {
		_, err := w.Write(a.pages.mem[s.off : s.off+s.bytes])
		return err
	}
	_, err := io.CopyBuffer(w, io.NewSectionReader(a.far, s.off, s.bytes), make([]byte, min(s.bytes, farChunk)))
	return err
}

// readFrom reads the bytes of a buffer, or skips them if the buffer was freed.
func (a *Arena) readFrom(r io.Reader, s *slot, bytes int64) error {
	var to io.Writer = io.Discard
	switch {
	case s == nil:
	case a.far == nil:
		_, err := io.ReadFull(r, a.pages.mem[s.off:s.off+s.bytes])
		return err
	default:
		to = io.NewOffsetWriter(a.far, s.off)
	}
	n, err := io.CopyBuffer(to, io.LimitReader(r, bytes), make([]byte, min(bytes, farChunk)))
	if err == nil && n < bytes {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// populate makes committed pages present.
func (a *Arena) populate(low, high int64) error {
	if a.far != nil {
		return nil
	}
	return a.pager.Populate(a.pages.mem[low:high])
}

// discardRun discards the pages of a run.
func (a *Arena) discardRun(run span) error {
	if a.far != nil {
		return a.far.Discard(run.off, run.off+run.size)
	}
	return a.pager.Discard(a.pages.mem[run.off : run.off+run.size])
}
