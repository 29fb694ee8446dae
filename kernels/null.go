package kernels

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
)

// Shadowed is implemented by a device whose allocations [Null] can reproduce exactly.
type Shadowed interface {
	// ShadowConfig returns the capacity and the alignment of the device's memory.
	ShadowConfig() memory.ArenaConfig
}

// nullEvents is the maximum number of events that a [Null] keeps, at 24 bytes each.
const nullEvents = 1 << 20

// AllocEvent is the allocation or the release of one of a [Null]'s buffers.
type AllocEvent struct {
	// Serial numbers the buffers from 0 in order of allocation. It matches a release to its
	// allocation.
	Serial uint64
	Bytes  int64 // as requested
	Class  memory.Class
	Alloc  bool // true for an allocation, false for a release
}

// Null is a device that computes nothing and reproduces the memory behavior of a target. In its
// own arena, it returns buffers of the same sizes, classes and alignment up to the same
// capacity, requires the same workspaces and rejects the same buffers. It does not touch the
// target or its books, nor any page of its own buffers (except in a build with -tags invariants,
// which poisons them). During a dry run it records every allocation and release of a buffer, and
// reports changes of references to a watcher ([Null.Watch]).
//
// Reads return zeros, and HeadLoss and SumSquares return 0. Null never looks at contents, so it
// does not detect an id out of range.
//
// If the target is [Shadowed], the arena has the target's configuration. Otherwise its capacity
// is the amount that the target has reserved (Stats), or the default of [memory.ArenaConfig] if
// that is 0. Null does not own the target, and otherwise asks it only for its name, its workspace
// sizes and its [HeadLimit].
type Null struct {
	host
	refused error // why there is no arena, or nil
	serials map[memory.Handle]uint64
	events  []AllocEvent
	dropped int64
	changed func(memory.Change) // nil if there is no watcher
}

var (
	_ Addressable            = (*Null)(nil)
	_ Shadowed               = (*Null)(nil)
	_ memory.Watched[Buffer] = (*Null)(nil)
	_ memory.Planned         = (*Null)(nil)
	_ memory.Scoped          = (*Null)(nil)
)

// NewNull returns a Null device for target and reserves its arena. If the system refuses the
// reservation, Alloc and AllocIn return the error. The caller must close the device.
func NewNull(target Compute) *Null {
	n := &Null{host: host{target: target}, serials: map[memory.Handle]uint64{}}
	config := n.ShadowConfig()
	config.Pages = memory.NopPager{}
	arena, err := memory.NewArena(config)
	if err != nil {
		arena, n.refused = new(memory.Arena), fmt.Errorf("kernels: null of %s: %w", target.Name(), err)
	}
	n.arena = arena
	return n
}

// ShadowConfig returns the configuration of the arena.
func (n *Null) ShadowConfig() memory.ArenaConfig {
	if s, ok := n.target.(Shadowed); ok {
		return s.ShadowConfig()
	}
	var stats memory.Stats
	n.target.Stats(&stats)
	return memory.ArenaConfig{Capacity: stats.Reserved}
}

// Record returns the allocations and releases of buffers since the start or the last Forget, in
// order. The view is valid until the next Forget. Releases by Close are not recorded.
func (n *Null) Record() []AllocEvent { return n.events[:len(n.events):len(n.events)] }

// Dropped returns the number of events that did not fit in the record, which keeps the first
// 1,048,576 events (24 MiB).
func (n *Null) Dropped() int64 { return n.dropped }

// Forget empties the record. Serial numbers continue.
func (n *Null) Forget() { n.events, n.dropped = n.events[:0], 0 }

func (n *Null) record(e AllocEvent) {
	if len(n.events) == nullEvents {
		n.dropped++
		return
	}
	n.events = append(n.events, e)
}

// Name returns the name of the target, prefixed with "null of ".
func (n *Null) Name() string { return "null of " + n.target.Name() }

// Alloc returns a buffer as the target would and records it.
func (n *Null) Alloc(class memory.Class, t DType, count int) (Buffer, error) {
	return n.allocated(class, func() (Buffer, error) { return n.space.Alloc(class, t, count) })
}

// AllocIn returns a buffer as the target would and records it.
func (n *Null) AllocIn(scope memory.Scope, t DType, count int) (Buffer, error) {
	return n.allocated(memory.Resident, func() (Buffer, error) { return n.space.AllocIn(scope, t, count) })
}

// allocated returns the buffer that alloc returns and records it.
func (n *Null) allocated(class memory.Class, alloc func() (Buffer, error)) (Buffer, error) {
	if n.refused != nil {
		return Buffer{}, n.refused
	}
	serial := n.arena.Mark()
	b, err := alloc()
	if err != nil {
		return Buffer{}, err
	}
	n.serials[b.Handle] = serial
	n.record(AllocEvent{Serial: serial, Bytes: n.arena.Bytes(b.Handle), Class: class, Alloc: true})
	n.report(memory.Allocated, b)
	return b, nil
}

// Watch arranges for changed to be called for every reference added or removed, until the next
// Watch. Reclaim and Close do not call it.
func (n *Null) Watch(changed func(memory.Change)) { n.changed = changed }

// Serial returns the serial number of the buffer that b refers to, and whether that buffer
// exists.
func (n *Null) Serial(b Buffer) (uint64, bool) {
	serial, live := n.serials[b.Handle]
	return serial, live
}

// report reports a change to the watcher.
func (n *Null) report(op memory.ChangeOp, b Buffer) {
	if n.changed != nil {
		n.changed(memory.Change{Op: op, Serial: n.serials[b.Handle], Bytes: n.arena.Bytes(b.Handle), Class: n.arena.Class(b.Handle)})
	}
}

// Retain adds a plain reference for the caller.
func (n *Null) Retain(b Buffer) error {
	err := n.space.Retain(b)
	if err == nil {
		n.report(memory.Retained, b)
	}
	return err
}

// Release releases a plain reference. If it was the last one, it records the release of the
// buffer.
func (n *Null) Release(b Buffer) (freed int64, err error) {
	class, serial, bytes := n.arena.Class(b.Handle), n.serials[b.Handle], n.arena.Bytes(b.Handle)
	freed, err = n.space.Release(b)
	if freed > 0 {
		n.released(b.Handle, class, freed)
	}
	if err == nil && n.changed != nil {
		n.changed(memory.Change{Op: memory.Released, Serial: serial, Bytes: bytes, Class: class})
	}
	return freed, err
}

// UnholdAndRelease combines Unhold and Release.
func (n *Null) UnholdAndRelease(b Buffer) (unheld, freed int64, class memory.Class, err error) {
	if unheld, err = n.space.Unhold(b); err != nil {
		return 0, 0, 0, err
	}
	class = n.arena.Class(b.Handle)
	freed, err = n.Release(b)
	return unheld, freed, class, err
}

// released records the release of a buffer.
func (n *Null) released(h memory.Handle, class memory.Class, bytes int64) {
	n.record(AllocEvent{Serial: n.serials[h], Bytes: bytes, Class: class})
	delete(n.serials, h)
}

// Reclaim frees every buffer allocated since mark that is not Lasting, and records the releases
// in order of allocation.
func (n *Null) Reclaim(mark uint64) int64 {
	infos := slices.Collect(n.arena.All())
	freed := n.space.Reclaim(mark)
	for _, info := range infos {
		if n.arena.Bytes(info.Handle) == 0 {
			n.released(info.Handle, info.Class, info.Bytes)
		}
	}
	return freed
}

// Floats returns a buffer like Host.Floats and records it. It does not keep the elements.
func (n *Null) Floats(class memory.Class, x ...float32) (Buffer, error) {
	return n.Alloc(class, Float32, len(x))
}

// Float32s returns a new slice of zeros with the length of the buffer, or nil for the zero Buffer.
// Writes to it are lost. It panics for the same handles as Host.Float32s.
func (n *Null) Float32s(b Buffer) []float32 {
	c := n.call("Float32s")
	c.optional("b", b, b.N)
	if c.err != nil {
		panic(c.err)
	}
	if b == (Buffer{}) {
		return nil
	}
	return make([]float32, b.N)
}

// Hash returns 0, because a Null never looks at contents.
func (n *Null) Hash(Buffer) (uint64, error) { return 0, nil }

// Sync does nothing.
func (n *Null) Sync() error { return nil }

// Close releases the reserved range. The target is not affected.
func (n *Null) Close() error {
	if n.refused != nil {
		return nil
	}
	clear(n.serials)
	return n.space.Close()
}
