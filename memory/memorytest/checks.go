package memorytest

import "github.com/weir-ml/weir/memory"

// check is one requirement of the interfaces.
type check[T any] struct {
	name string
	run  func(*probe[T])
}

// checks returns every check. Sizes differ within a check, so that a result for the wrong
// buffer is a wrong number.
func checks[T any]() []check[T] {
	return []check[T]{
		{"none", none[T]},
		{"birth", birth[T]},
		{"release", release[T]},
		{"hold", hold[T]},
		{"unhold", yield[T]},
		{"borrow", borrow[T]},
		{"no plain reference", noPlain[T]},
		{"not held", notHeld[T]},
		{"independent", independent[T]},
		{"stale", stale[T]},
		{"reused", reused[T]},
		{"book", with[memory.Book](book[T])},
		{"book by class", with[memory.Book](bookByClass[T])},
		{"peak", with[memory.Book](peak[T])},
		{"at the peak", with[memory.PeakWatched](atPeak[T])},
		{"flat", with[memory.Book](flat[T])},
		{"reclaim", with[memory.Reclaimer](reclaim[T])},
		{"reclaimed", with[memory.Reclaimer](reclaimed[T])},
		{"planned", with[memory.Planned](planned[T])},
		{"unplanned", with[memory.Planned](unplanned[T])},
		{"overlap", with[memory.Planned](overlap[T])},
		{"laid over live buffers", with[memory.Planned](laidOverLive[T])},
		{"pages", with[memory.Scoped](pages[T])},
	}
}

// with returns a check of spaces that implement an optional interface.
func with[I, T any](run func(*probe[T], I)) func(*probe[T]) {
	return func(p *probe[T]) {
		if space, ok := p.Space.(I); ok {
			run(p, space)
		}
	}
}

// none: the zero handle has no buffer.
func none[T any](p *probe[T]) {
	var zero T
	p.gone(zero, memory.ErrNone)
}

// birth: a buffer has the size and the class given to Alloc.
func birth[T any](p *probe[T]) {
	for c := range memory.NumClasses {
		class, size := memory.Class(c), int64(100+c)
		h := p.alloc(class, size)
		if p.fault != nil {
			return
		}
		p.equal("Bytes", p.Space.Bytes(h), size)
		if got := p.Space.Class(h); got != class {
			p.failf("Class is %s, want %s", got, class)
		}
		p.release(h, size)
	}
}

// release: only the last reference frees the buffer.
func release[T any](p *probe[T]) {
	h := p.alloc(memory.Saved, 300)
	p.retain(h)
	p.retain(h)
	p.release(h, 0)
	p.release(h, 0)
	p.release(h, 300)
}

// hold: only the first hold returns the bytes.
func hold[T any](p *probe[T]) {
	h := p.alloc(memory.Saved, 300)
	p.retain(h)
	p.hold(h, 300)
	p.hold(h, 0)
	p.yield(h, 0)
	p.release(h, 0)
	p.yield(h, 300)
	p.release(h, 300)
}

// yield: after Unhold, the caller owns the reference, and can hold the buffer again.
func yield[T any](p *probe[T]) {
	h := p.alloc(memory.Saved, 300)
	p.hold(h, 300)
	p.yield(h, 300)
	p.hold(h, 300)
	p.yield(h, 300)
	p.release(h, 300)
}

// borrow: a caller that borrows a held buffer may retain it, and keep it longer than its
// holders.
func borrow[T any](p *probe[T]) {
	h := p.alloc(memory.Activation, 300)
	p.hold(h, 300)
	p.retain(h)
	p.release(h, 0)
	p.retain(h)
	p.yield(h, 300)
	p.release(h, 0)
	p.release(h, 300)
}

// noPlain: held references cannot be released or held again by the caller.
func noPlain[T any](p *probe[T]) {
	h := p.alloc(memory.Activation, 300)
	p.hold(h, 300)
	p.refuses("release of a buffer with held references only", p.Space.Release, h, memory.ErrNoPlain)
	p.refuses("hold of a buffer with held references only", p.Space.Hold, h, memory.ErrNoPlain)
	p.yield(h, 300) // still held, once
	p.release(h, 300)
}

// notHeld: a buffer that is not held cannot be unheld.
func notHeld[T any](p *probe[T]) {
	h := p.alloc(memory.Activation, 300)
	p.refuses("yield of a buffer that is not held", p.Space.Unhold, h, memory.ErrNotHeld)
	p.hold(h, 300) // still one plain reference
	p.yield(h, 300)
	p.refuses("yield of a buffer that is no longer held", p.Space.Unhold, h, memory.ErrNotHeld)
	p.release(h, 300)
}

// independent: calls on one buffer do not affect another.
func independent[T any](p *probe[T]) {
	x, y := p.alloc(memory.Saved, 300), p.alloc(memory.Saved, 500)
	p.hold(x, 300)
	p.refuses("yield of the other buffer", p.Space.Unhold, y, memory.ErrNotHeld)
	p.retain(y)
	p.hold(y, 500)
	p.yield(x, 300)
	p.release(x, 300)
	p.release(y, 0)
	p.yield(y, 500)
	p.release(y, 500)
}

// stale: a handle is invalid after the last release.
func stale[T any](p *probe[T]) {
	if p.Adopts {
		return
	}
	h := p.alloc(memory.Saved, 300)
	p.release(h, 300)
	p.gone(h, memory.ErrStale)
}

// reused: a stale handle does not become valid with the next buffer.
func reused[T any](p *probe[T]) {
	if p.Adopts {
		return
	}
	old := p.alloc(memory.Saved, 300)
	p.release(old, 300)
	for range 8 {
		h := p.alloc(memory.Saved, 300)
		p.gone(old, memory.ErrStale)
		p.release(h, 300)
	}
}

// book: only allocations and frees change the allocator's book (L6).
func book[T any](p *probe[T], b memory.Book) {
	p.equal("Live of an empty space", b.Live(), 0)
	x := p.alloc(memory.Saved, 300)
	y := p.alloc(memory.Entry, 500)
	p.equal("Live", b.Live(), 800)
	p.retain(x)
	p.hold(x, 300)
	p.release(x, 0)
	p.equal("Live, which references do not change,", b.Live(), 800)
	p.yield(x, 300)
	p.release(y, 500)
	p.equal("Live after a release", b.Live(), 300)
	p.release(x, 300)
	p.equal("Live after the last release", b.Live(), 0)
}

// bookByClass: Stats agrees with Live, class by class, and counts buffers.
func bookByClass[T any](p *probe[T], b memory.Book) {
	var before, s memory.Stats
	b.Stats(&before)
	var handles []T
	for c := range memory.NumClasses {
		handles = append(handles, p.alloc(memory.Class(c), int64(100+c)))
	}
	b.Stats(&s)
	p.equal("Stats.Live", s.Live, b.Live())
	p.equal("Stats.Allocs", s.Allocs-before.Allocs, int64(memory.NumClasses))
	p.equal("Stats.Frees", s.Frees-before.Frees, 0)
	for c, got := range s.Classes {
		p.equal("Stats.Classes of "+memory.Class(c).String(), got, int64(100+c))
	}
	if s.Reserved < s.Live {
		p.failf("Stats.Reserved is %d, below Live, %d", s.Reserved, s.Live)
	}
	for c, h := range handles {
		p.release(h, int64(100+c))
	}
	b.Stats(&s)
	p.equal("Stats.Frees after all releases", s.Frees-before.Frees, int64(memory.NumClasses))
	p.equal("Stats.Classes in total after all releases", s.Classes.Total(), 0)
}

// peak: the peak is the highest level since the last reset, and its classes are the live bytes
// at that time.
func peak[T any](p *probe[T], b memory.Book) {
	var s memory.Stats
	b.ResetPeak()
	x, y := p.alloc(memory.Saved, 300), p.alloc(memory.Workspace, 500)
	p.release(y, 500)
	z := p.alloc(memory.Activation, 400)
	b.Stats(&s)
	p.equal("Stats.Peak", s.Peak, 800)
	p.equal("Stats.PeakClasses of saved", s.PeakClasses[memory.Saved], 300)
	p.equal("Stats.PeakClasses of workspace", s.PeakClasses[memory.Workspace], 500)
	p.equal("Stats.PeakClasses in total", s.PeakClasses.Total(), 800)
	p.release(z, 400)
	b.ResetPeak()
	b.Stats(&s)
	p.equal("Stats.Peak after ResetPeak", s.Peak, 300)
	p.equal("Stats.PeakClasses in total after ResetPeak", s.PeakClasses.Total(), 300)
	p.release(x, 300)
	b.Stats(&s)
	p.equal("Stats.Peak after ResetPeak and a release", s.Peak, 300)
	p.equal("Stats.PeakClasses in total after ResetPeak and a release", s.PeakClasses.Total(), 300)
}

// atPeak: the buffers that were live at the highest level are reported afterwards, with the
// places of their allocations.
func atPeak[T any](p *probe[T], w memory.PeakWatched) {
	w.WatchPeak(true)
	w.SetPlace(1)
	x := p.alloc(memory.Saved, 300)
	w.SetPlace(2)
	y := p.alloc(memory.Workspace, 500)
	p.release(y, 500)
	w.SetPlace(3)
	z := p.alloc(memory.Activation, 400)
	var bytes [4]int64 // by place
	collect := func() {
		bytes = [4]int64{}
		for b := range w.AtPeak() {
			if b.Place < 0 || b.Place >= len(bytes) {
				p.failf("AtPeak has a buffer of %d bytes from place %d, want places 1 to 3", b.Bytes, b.Place)
				continue
			}
			bytes[b.Place] += b.Bytes
		}
	}
	collect()
	p.equal("AtPeak of a buffer that is still live", bytes[1], 300)
	p.equal("AtPeak of a buffer that was released", bytes[2], 500)
	p.equal("AtPeak of a buffer that was allocated later", bytes[3], 0)
	w.WatchPeak(true)
	p.release(x, 300)
	p.release(z, 400)
	collect()
	p.equal("AtPeak of buffers allocated before WatchPeak", bytes[1]+bytes[3], 700)
	p.equal("AtPeak of an earlier period", bytes[2], 0)
	w.WatchPeak(false)
}

// flat: a repeating pattern reserves no more memory after the first time (L7).
func flat[T any](p *probe[T], b memory.Book) {
	var first, s memory.Stats
	for round := range 64 {
		x, y := p.alloc(memory.Saved, 3000), p.alloc(memory.Workspace, 500)
		p.hold(x, 3000)
		p.release(y, 500)
		p.yield(x, 3000)
		p.release(x, 3000)
		b.Stats(&s)
		if round == 0 {
			first = s
		}
	}
	p.equal("Stats.Live after 64 equal rounds", s.Live, 0)
	p.equal("Stats.Reserved after 64 equal rounds", s.Reserved, first.Reserved)
}

// reclaim: every buffer allocated since the mark is freed, held or not; Resident and older
// buffers stay (L8).
func reclaim[T any](p *probe[T], r memory.Reclaimer) {
	old := p.alloc(memory.Saved, 300)
	p.hold(old, 300)
	mark := r.Mark()
	held := p.alloc(memory.Saved, 500)
	p.hold(held, 500)
	lost := p.alloc(memory.Workspace, 700)
	p.retain(lost)
	weights := p.alloc(memory.Resident, 1100)
	p.retain(weights)
	if p.fault != nil {
		return
	}
	p.equal("Reclaim", r.Reclaim(mark), 1200)
	p.equal("a second Reclaim", r.Reclaim(mark), 0)
	p.release(weights, 0)
	p.release(weights, 1100)
	p.yield(old, 300)
	p.release(old, 300)
	if b, ok := p.Space.(memory.Book); ok {
		p.equal("Live after Reclaim and all releases", b.Live(), 0)
	}
}

// reclaimed: handles to reclaimed buffers are stale, even after new buffers are allocated.
func reclaimed[T any](p *probe[T], r memory.Reclaimer) {
	if p.Adopts {
		return
	}
	mark := r.Mark()
	h := p.alloc(memory.Saved, 500)
	p.hold(h, 500)
	r.Reclaim(mark)
	p.gone(h, memory.ErrStale)
	next := p.alloc(memory.Saved, 500)
	p.gone(h, memory.ErrStale)
	p.release(next, 500)
}
