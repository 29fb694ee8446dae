package memorytest

import (
	"bytes"

	"github.com/weir-ml/weir/memory"
)

// tiny is a step of two places: the third buffer reuses the place of the first.
func tiny() *memory.Layout {
	return &memory.Layout{
		Height: 804,
		Allocations: []memory.Allocation{
			{Offset: 0, Bytes: 300, Class: memory.Saved},
			{Offset: 304, Bytes: 500, Class: memory.Workspace, AtMost: true},
			{Offset: 0, Bytes: 296, Class: memory.Carry},
		},
		Places: []int32{0, 2, 3},
		Levels: []memory.Level{{Live: 500, Peak: 800}, {Live: 0, Peak: 796}},
	}
}

// lay lays out the tiny step and sets the program to its first place.
func (p *probe[T]) lay(planned memory.Planned) {
	if p.fault != nil {
		return
	}
	if err := planned.SetLayout(tiny()); err != nil {
		p.failf("SetLayout: %w", err)
		return
	}
	planned.SetPlace(0)
}

// at sets the place of the program.
func (p *probe[T]) at(planned memory.Planned, place int) {
	if p.fault == nil {
		planned.SetPlace(place)
	}
}

// unlay removes the layout.
func (p *probe[T]) unlay(planned memory.Planned) {
	if p.fault == nil {
		if err := planned.SetLayout(nil); err != nil {
			p.failf("SetLayout(nil): %w", err)
		}
	}
}

// noRoom requires that Alloc fails with want and returns a handle without a buffer.
func (p *probe[T]) noRoom(class memory.Class, size int64, want error) {
	p.refuses("alloc", func(T) (int64, error) {
		h, err := p.Alloc(class, size)
		return p.Space.Bytes(h), err
	}, *new(T), want)
}

// planned: allocations of the layout succeed, repeatedly, and so do Resident ones.
func planned[T any](p *probe[T], l memory.Planned) {
	for range 3 {
		p.lay(l)
		x, y := p.alloc(memory.Saved, 300), p.alloc(memory.Workspace, 400)
		weights := p.alloc(memory.Resident, 700)
		p.release(x, 300)
		p.at(l, 1)
		z := p.alloc(memory.Carry, 296)
		p.release(y, 400)
		p.hold(z, 296)
		p.yield(z, 296)
		p.release(z, 296)
		p.release(weights, 700)
		p.unlay(l)
	}
	p.release(p.alloc(memory.Activation, 3000), 3000) // first fit without a layout
}

// unplanned: allocations that are not in the layout fail.
func unplanned[T any](p *probe[T], l memory.Planned) {
	p.lay(l)
	p.noRoom(memory.Saved, 299, memory.ErrUnplanned)
	p.noRoom(memory.Carry, 300, memory.ErrUnplanned)
	x := p.alloc(memory.Saved, 300)
	p.noRoom(memory.Workspace, 501, memory.ErrUnplanned)
	y := p.alloc(memory.Workspace, 500)
	p.noRoom(memory.Workspace, 500, memory.ErrUnplanned)
	p.at(l, 2)
	p.noRoom(memory.Saved, 300, memory.ErrUnplanned)
	p.release(x, 300)
	p.release(y, 500)
	p.unlay(l)
}

// overlap: nothing is placed over a buffer that was not released.
func overlap[T any](p *probe[T], l memory.Planned) {
	p.lay(l)
	x, y := p.alloc(memory.Saved, 300), p.alloc(memory.Workspace, 500)
	p.at(l, 1)
	p.noRoom(memory.Carry, 296, memory.ErrOverlap)
	p.release(x, 300)
	p.release(y, 500)
	p.unlay(l)
}

// laidOverLive: a step does not begin while a buffer of another one is live.
func laidOverLive[T any](p *probe[T], l memory.Planned) {
	lay := func(T) (int64, error) { return 0, l.SetLayout(tiny()) }
	x := p.alloc(memory.Saved, 300)
	p.refuses("SetLayout while a buffer is live", lay, x, memory.ErrLive)
	p.release(x, 300)
	weights := p.alloc(memory.Resident, 300)
	p.lay(l)
	p.unlay(l)
	p.release(weights, 300)
}

// pages: the pages of steps are released if no step is running, and Resident buffers are
// written out and restored.
func pages[T any](p *probe[T], s memory.Scoped) {
	var saved bytes.Buffer
	release := func(T) (int64, error) { return 0, s.ReleasePages(&saved, memory.Scopes()...) }
	x, weights := p.alloc(memory.Saved, 300), p.alloc(memory.Resident, 500)
	p.refuses("ReleasePages while a buffer of a step is live", release, x, memory.ErrLive)
	p.release(x, 300)
	if p.fault != nil {
		return
	}
	if _, err := release(x); err != nil {
		p.failf("ReleasePages: %w", err)
		return
	}
	for _, scope := range memory.Scopes() {
		stats := s.Scope(scope)
		p.equal("live bytes of released scope "+scope.String(), stats.Live, 0)
		p.equal("reserved bytes of released scope "+scope.String(), stats.Reserved, 0)
	}
	p.equal("bytes without pages", s.Scope(memory.Weights).Released, 500)
	p.refuses("RestorePages of nothing", func(T) (int64, error) { return 0, s.RestorePages(nil) }, x, memory.ErrSaved)
	if err := s.RestorePages(&saved); err != nil {
		p.failf("RestorePages: %w", err)
	}
	p.equal("live bytes of weights", s.Scope(memory.Weights).Live, 500)
	p.release(weights, 500)
}
