package memory

import (
	"fmt"
	"hash/maphash"
	"iter"
)

// GCSpace is a [Space] for handles whose memory belongs to a garbage collector. It counts references,
// and keeps a handle reachable no longer than necessary, so that the collector can free the memory once
// the step has released it.
//
// It follows one rule: a handle that GCSpace does not know refers to a buffer with exactly one plain
// reference, owned by its creator. No registration is needed: a stage creates a tensor and returns it,
// and the runner's Hold finds that one reference and converts it. Retain of such a handle makes two. By
// the same rule, GCSpace forgets a handle whose count returns to one plain reference and no held ones,
// and a handle without references. Code that receives its tensor back from Unhold may therefore either
// Release it or simply drop it: the space no longer refers to it. Its class and size are determined when
// a handle becomes known, and stay the same until it is forgotten.
//
// For a handle that it knows, it detects a Hold or a Release when no plain reference is left
// (ErrNoPlain), and an Unhold of a buffer that is not held (ErrNotHeld). It cannot detect a second Release
// of a buffer, which by the rule counts as the Release of a new one, nor any other use after the release,
// nor a stage that keeps a handle without a reference. It has no [Book], so a step that uses it audits
// only one book. If a Retain has no matching Release, the handle stays reachable: Len and All show it,
// and Reclaim releases it.
//
// Handles that are equal (==) refer to the same buffer, and a handle must equal itself. The zero T refers
// to no buffer. A GCSpace is not safe for concurrent use.
type GCSpace[T comparable] struct {
	class  func(T) Class
	bytes  func(T) int64
	known  table[T]
	serial uint64 // of the next handle that becomes known
}

// count is the state of a known handle.
type count struct {
	bytes, plain, held int64
	serial             uint64
	class              Class
}

var (
	_ Space[int] = (*GCSpace[int])(nil)
	_ Reclaimer  = (*GCSpace[int])(nil)
)

// NewGCSpace returns a space that knows no handles. The functions return the class and the size of a
// buffer; they are never called with the zero T. A nil class function means Activation for all buffers,
// and a nil bytes function means a size of 0.
func NewGCSpace[T comparable](class func(T) Class, bytes func(T) int64) *GCSpace[T] {
	if class == nil {
		class = func(T) Class { return Activation }
	}
	if bytes == nil {
		bytes = func(T) int64 { return 0 }
	}
	known := table[T]{seed: maphash.MakeSeed(), entries: make([]entry[T], 64)}
	return &GCSpace[T]{class: class, bytes: bytes, known: known}
}

// Bytes returns the size of the buffer, or 0 for the zero T.
func (c *GCSpace[T]) Bytes(h T) int64 {
	n, _, _ := c.find(h)
	return n.bytes
}

// Class returns the class of the buffer, or the zero class for the zero T.
func (c *GCSpace[T]) Class(h T) Class {
	n, _, _ := c.find(h)
	return n.class
}

// Retain adds a plain reference for the caller.
func (c *GCSpace[T]) Retain(h T) error {
	_, err := c.change("retain", h, 1, 0)
	return err
}

// Release releases a plain reference. If it was the last reference of either kind, it returns
// the bytes that the collector can now free.
func (c *GCSpace[T]) Release(h T) (freed int64, err error) {
	n, err := c.change("release", h, -1, 0)
	if err != nil || n.plain+n.held > 0 {
		return 0, err
	}
	return n.bytes, nil
}

// Hold converts one plain reference into a held one.
func (c *GCSpace[T]) Hold(h T) (held int64, err error) {
	n, err := c.change("hold", h, -1, 1)
	if err != nil || n.held > 1 {
		return 0, err
	}
	return n.bytes, nil
}

// Unhold converts one held reference into a plain one.
func (c *GCSpace[T]) Unhold(h T) (unheld int64, err error) {
	n, err := c.change("unhold", h, 1, -1)
	if err != nil || n.held > 0 {
		return 0, err
	}
	return n.bytes, nil
}

// find returns the count of h and its index in the table. For an unknown handle, it returns the count
// given by the rule and index -1. It returns false for the zero T.
func (c *GCSpace[T]) find(h T) (n count, place int, ok bool) {
	var zero T
	if h == zero {
		return count{}, -1, false
	}
	if i, ok := c.known.find(h); ok {
		return c.known.entries[i].count, i, true
	}
	return count{bytes: c.bytes(h), class: c.class(h), plain: 1, serial: c.serial}, -1, true
}

// change adds to the references of h and returns the new count. It keeps h only if the new count has a held
// reference or more than one plain reference.
func (c *GCSpace[T]) change(call string, h T, plain, held int64) (count, error) {
	n, i, ok := c.find(h)
	switch {
	case !ok:
		return n, fmt.Errorf("%w: %s", ErrNone, call)
	case n.plain+plain < 0:
		return n, n.wrong(ErrNoPlain, call)
	case n.held+held < 0:
		return n, n.wrong(ErrNotHeld, call)
	}
	n.plain += plain
	n.held += held
	switch told := n.held == 0 && n.plain <= 1; {
	case told && i >= 0:
		c.known.remove(i)
	case !told && i >= 0:
		c.known.entries[i].count = n
	case !told:
		c.known.insert(h, n)
		c.serial++
	}
	return n, nil
}

// Mark returns the current position in the order in which handles become known.
func (c *GCSpace[T]) Mark() uint64 { return c.serial }

// Reclaim forgets every handle that became known since mark and is not Lasting, and returns their total
// size in bytes. Each is then back to its creator's single reference.
func (c *GCSpace[T]) Reclaim(mark uint64) int64 {
	var zero T
	var freed int64
	for i := 0; i < len(c.known.entries); {
		e := &c.known.entries[i]
		if e.handle == zero || e.count.serial < mark || e.count.class.Lasting() {
			i++
			continue
		}
		freed += e.count.bytes
		c.known.remove(i) // may move an entry to i, so i is examined again
	}
	return freed
}

// wrong returns the error for a missing reference. It does not print the handle, which may be a
// whole tensor.
func (n *count) wrong(err error, call string) error {
	return fmt.Errorf("%w: %s (%s, %d bytes; %d plain, %d held)", err, call, n.class, n.bytes, n.plain, n.held)
}

// Len returns the number of handles that the space knows.
func (c *GCSpace[T]) Len() int { return c.known.used }

// All returns a description of each handle that the space knows, in the order in which they became known,
// but not the handles themselves. It iterates over a snapshot, which it allocates when the iteration
// starts.
func (c *GCSpace[T]) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		var zero T
		live := make([]Info, 0, c.known.used)
		for i := range c.known.entries {
			e := &c.known.entries[i]
			if e.handle == zero {
				continue
			}
			n := &e.count
			live = append(live, Info{Class: n.class, Bytes: n.bytes, Plain: n.plain, Held: n.held, Serial: n.serial})
		}
		inOrder(live, yield)
	}
}
