package memorytest

import (
	"fmt"

	"github.com/weir-ml/weir/memory"
)

// Refusal makes one call fail, for tests of the state after a failed allocation.
type Refusal struct {
	At    int // the number of the call, from 1; 0 means none
	Calls int // number of calls so far
}

// Next returns nil, except for call At, for which it wraps memory.ErrOutOfMemory.
func (r *Refusal) Next() error {
	if r.Calls++; r.Calls == r.At {
		return fmt.Errorf("%w: memorytest refuses call %d", memory.ErrOutOfMemory, r.At)
	}
	return nil
}

// Pages is a [memory.Pager] with a limited number of pages. If it has too few, it supplies as
// many as it has and returns an error, as a system may.
type Pages struct {
	Pager memory.Pager // the underlying pager; nil means memory.System{}
	Bytes int64        // per page
	Left  int64        // remaining pages
}

// Populate supplies the pages of mem in order, as many as are left.
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

// Discard returns the pages of mem, and counts all of them as remaining again, even those that a touch
// supplied and not Populate.
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
