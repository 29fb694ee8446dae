package memorytest

import (
	"fmt"

	"github.com/weir-ml/weir/memory"
)

// Refusal says no at one call: for tests of what becomes of the rest when an allocation
// fails.
type Refusal struct {
	At    int // the number of the call, from 1; 0 refuses none
	Calls int // so many there were
}

// Next is nil but for the call at At, where it wraps memory.ErrOutOfMemory.
func (r *Refusal) Next() error {
	if r.Calls++; r.Calls == r.At {
		return fmt.Errorf("%w: memorytest refuses call %d", memory.ErrOutOfMemory, r.At)
	}
	return nil
}

// Pages is a [memory.Pager] that has so many pages and no more. Those that it cannot
// supply it refuses after it has supplied the others, as a system may.
type Pages struct {
	Pager memory.Pager // that supplies; nil is memory.System{}
	Bytes int64        // of each page
	Left  int64        // pages
}

// Populate supplies the pages of mem from the first on, as many as are left.
func (p *Pages) Populate(mem []byte) error {
	want := (int64(len(mem)) + p.Bytes - 1) / p.Bytes
	if got := min(want, p.Left); got > 0 {
		if err := p.pager().Populate(mem[:min(got*p.Bytes, int64(len(mem)))]); err != nil {
			return err
		}
		p.Left -= got
		want -= got
	}
	if want > 0 {
		return fmt.Errorf("memorytest: %d pages too few", want)
	}
	return nil
}

// Discard takes the pages of mem back, whether they were supplied by Populate or by a
// touch.
func (p *Pages) Discard(mem []byte) error {
	p.Left += (int64(len(mem)) + p.Bytes - 1) / p.Bytes
	return p.pager().Discard(mem)
}

func (p *Pages) pager() memory.Pager {
	if p.Pager == nil {
		return memory.System{}
	}
	return p.Pager
}
