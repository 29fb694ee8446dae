package memorytest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weir-ml/weir/memory"
)

// Subject is a space to check.
type Subject[T any] struct {
	// Space has no live buffer, and no other user. open may return a space again after a check
	// has left it empty.
	Space memory.Space[T]
	// Alloc returns a buffer in Space that has one plain reference. The checks allocate at most
	// 64 KiB at once and 1 MiB in total.
	Alloc func(class memory.Class, bytes int64) (T, error)
	// Adopts is set if the space treats an unknown handle as a new one, as memory.GCSpace
	// does, so that a use after the release is not an error.
	Adopts bool
	// Close closes the subject after its check. It may be nil.
	Close func() error
}

// Space runs every check as a subtest, each with its own subject.
func Space[T any](t *testing.T, open func() (Subject[T], error)) {
	t.Helper()
	for _, c := range checks[T]() {
		t.Run(c.name, func(t *testing.T) {
			t.Helper()
			if err := c.fault(open); err != nil {
				t.Error(err)
			}
		})
	}
}

// Faults runs every check and returns an error for each check that fails, prefixed with the
// name of the check. It is Space without testing.
func Faults[T any](open func() (Subject[T], error)) []error {
	var faults []error
	for _, c := range checks[T]() {
		if err := c.fault(open); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return faults
}

// fault runs the check on its own subject.
func (c check[T]) fault(open func() (Subject[T], error)) error {
	s, err := open()
	if err != nil {
		return fmt.Errorf("memorytest: open: %w", err)
	}
	p := &probe[T]{Subject: s}
	c.run(p)
	if s.Close != nil {
		if err := s.Close(); err != nil {
			p.failf("close: %w", err)
		}
	}
	return p.fault
}

// probe makes the calls of a check and keeps the first unexpected result. It makes no further
// calls after that.
type probe[T any] struct {
	Subject[T]
	fault error
}

func (p *probe[T]) failf(format string, args ...any) {
	if p.fault == nil {
		p.fault = fmt.Errorf("memorytest: "+format, args...)
	}
}

// alloc returns a buffer of size bytes.
func (p *probe[T]) alloc(class memory.Class, size int64) (h T) {
	if p.fault == nil {
		var err error
		if h, err = p.Alloc(class, size); err != nil {
			p.failf("alloc of %d bytes (%s): %w", size, class, err)
		}
	}
	return h
}

// retain requires that Retain succeeds.
func (p *probe[T]) retain(h T) {
	if p.fault == nil {
		if err := p.Space.Retain(h); err != nil {
			p.failf("retain: %w", err)
		}
	}
}

// release, hold and yield require that the call succeeds and returns the given number of bytes.
func (p *probe[T]) release(h T, want int64) { p.bytes("release", p.Space.Release, h, want) }
func (p *probe[T]) hold(h T, want int64)    { p.bytes("hold", p.Space.Hold, h, want) }
func (p *probe[T]) yield(h T, want int64)   { p.bytes("unhold", p.Space.Unhold, h, want) }

func (p *probe[T]) bytes(name string, call func(T) (int64, error), h T, want int64) {
	if p.fault != nil {
		return
	}
	if got, err := call(h); err != nil {
		p.failf("%s: %w", name, err)
	} else if got != want {
		p.failf("%s returned %d bytes, want %d", name, got, want)
	}
}

// refuses requires that the call fails with want and returns no bytes.
func (p *probe[T]) refuses(name string, call func(T) (int64, error), h T, want error) {
	if p.fault != nil {
		return
	}
	if got, err := call(h); !errors.Is(err, want) {
		p.failf("%s returned %d bytes and error (%v), want error (%v)", name, got, err, want)
	} else if got != 0 {
		p.failf("%s failed, as it should, but returned %d bytes", name, got)
	}
}

// gone requires that every call finds no buffer for h.
func (p *probe[T]) gone(h T, want error) {
	if p.fault != nil {
		return
	}
	if got := p.Space.Bytes(h); got != 0 {
		p.failf("Bytes returned %d for a handle without a buffer, want 0", got)
	}
	if err := p.Space.Retain(h); !errors.Is(err, want) {
		p.failf("retain returned error (%v), want (%v)", err, want)
	}
	p.refuses("release", p.Space.Release, h, want)
	p.refuses("hold", p.Space.Hold, h, want)
	p.refuses("unhold", p.Space.Unhold, h, want)
}

// equal requires that got is want.
func (p *probe[T]) equal(what string, got, want int64) {
	if got != want {
		p.failf("%s is %d, want %d", what, got, want)
	}
}
