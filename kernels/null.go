package kernels

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
)

// Shadowed is what a device offers so that [Null] can allocate just as it does.
type Shadowed interface {
	// ShadowConfig returns the capacity and the alignment of the device's memory.
	ShadowConfig() memory.ArenaConfig
}

// nullEvents is the most events that a [Null] keeps, 24 bytes each.
const nullEvents = 1 << 20

// Event is the allocation of a buffer of a [Null], or its release.
type Event struct {
	// Serial is the number of the buffer: the first that the device allocated is
	// 0, the next 1. It tells which allocation a release belongs to.
	Serial uint64
	Bytes  int64 // as asked for
	Class  memory.Class
	Alloc  bool // true where the buffer was allocated, false where it was released
}

// Null is a device that computes nothing and has the memory behaviour of a
// target. It gives buffers of the same sizes, classes, alignment and capacity,
// asks for the same workspaces and refuses the same buffers, in an arena of its
// own: the target and its books are not touched, and no page of the buffers
// either (a build with -tags invariants does touch them, to poison them). It
// records every allocation and release of a buffer, for one dry run, and reports
// every change of references to a watcher.
//
// Reads give zeros, HeadLoss and SumSquares return 0. Contents are never looked
// at, so an id out of range is not found.
//
// Where the target is [Shadowed] the arena is as the target says. Else its
// capacity is what the target has reserved (Stats), or the default of
// [memory.ArenaConfig] where that is 0. Null does not own the target, and uses it
// for nothing but its name and its workspaces.
type Null struct {
	host
	refused error // why there is no arena
	serials map[memory.Handle]uint64
	events  []Event
	dropped int64
	changed func(memory.Change) // nil where there is no watcher
}

var (
	_ Addressable            = (*Null)(nil)
	_ Shadowed               = (*Null)(nil)
	_ memory.Watched[Buffer] = (*Null)(nil)
	_ memory.Planned         = (*Null)(nil)
	_ memory.Scoped          = (*Null)(nil)
)

// NewNull returns the Null device of target and reserves its arena. Where the
// system refuses, every Alloc returns the error. The caller closes the
// device.
func NewNull(target Compute) *Null {
	n := &Null{host: host{target: target}, serials: map[memory.Handle]uint64{}}
	config := n.ShadowConfig()
	config.Pages = memory.Unpaged{}
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

// Record returns the allocations and releases of buffers since the start or the last
// Forget, in order. It is a view that holds until the next Forget. Releases by Close are
// not in it.
func (n *Null) Record() []Event { return n.events[:len(n.events):len(n.events)] }

// Dropped returns the number of events that the record had no room for: it keeps
// the first 1,048,576 (24 MiB).
func (n *Null) Dropped() int64 { return n.dropped }

// Forget empties the record. Serial numbers go on.
func (n *Null) Forget() { n.events, n.dropped = n.events[:0], 0 }

func (n *Null) record(e Event) {
	if len(n.events) == nullEvents {
		n.dropped++
		return
	}
	n.events = append(n.events, e)
}

// Name returns the name of the target with "null of " before it.
func (n *Null) Name() string { return "null of " + n.target.Name() }

// Alloc returns a buffer as the target would and records it.
func (n *Null) Alloc(class memory.Class, t DType, count int) (Buffer, error) {
	return n.allocated(class, func() (Buffer, error) { return n.space.Alloc(class, t, count) })
}

// AllocIn returns a buffer as the target would and records it.
func (n *Null) AllocIn(scope memory.Scope, t DType, count int) (Buffer, error) {
	return n.allocated(memory.Resident, func() (Buffer, error) { return n.space.AllocIn(scope, t, count) })
}

// allocated records the buffer that alloc returns.
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
	n.record(Event{Serial: serial, Bytes: n.arena.Bytes(b.Handle), Class: class, Alloc: true})
	n.report(memory.Allocated, b)
	return b, nil
}

// Watch calls changed for every reference more or less, until the next Watch.
func (n *Null) Watch(changed func(memory.Change)) { n.changed = changed }

// Serial returns the number of the buffer behind b, and whether there is one.
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

// Release releases a plain reference, and records the release of the buffer with the last.
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

// Leave is Yield and Release.
func (n *Null) Leave(b Buffer) (yielded, freed int64, class memory.Class, err error) {
	if yielded, err = n.space.Yield(b); err != nil {
		return 0, 0, 0, err
	}
	class = n.arena.Class(b.Handle)
	freed, err = n.Release(b)
	return yielded, freed, class, err
}

// released records the release of a buffer.
func (n *Null) released(h memory.Handle, class memory.Class, bytes int64) {
	n.record(Event{Serial: n.serials[h], Bytes: bytes, Class: class})
	delete(n.serials, h)
}

// Reclaim frees every buffer allocated since mark that is not Lasting, and
// records their releases in the order of their allocation.
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

// Floats returns a buffer as Host.Floats does and records it. The elements are not kept.
func (n *Null) Floats(class memory.Class, x ...float32) (Buffer, error) {
	return n.Alloc(class, Float32, len(x))
}

// Float32s returns as many zeros as the buffer has elements. What is written there is lost. It
// refuses what Host.Float32s refuses.
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

// Hash returns 0: contents are never looked at.
func (n *Null) Hash(Buffer) (uint64, error) { return 0, nil }

// Sync does nothing.
func (n *Null) Sync() error { return nil }

// Close gives the reserved range back. The target stays as it is.
func (n *Null) Close() error {
	if n.refused != nil {
		return nil
	}
	clear(n.serials)
	return n.space.Close()
}
