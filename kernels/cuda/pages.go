package cuda

import (
	"errors"

	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// pages is the memory.Range of a device: one reservation, of which each page that is present
// is memory of its own, so that any of them can go.
type pages struct {
	device  *Device
	page    int64
	base    driver.Addr
	size    int64
	present []bool
}

// Page returns the bytes of a page.
func (p *pages) Page() int64 { return p.page }

// Reserve takes the addresses.
func (p *pages) Reserve(bytes int64) (err error) {
	if p.base, err = p.device.driver.Reserve(bytes); err == nil {
		p.size, p.present = bytes, make([]bool, bytes/p.page)
	}
	return err
}

// runs calls do for each run of pages, from low to high, that are present or are not, and
// enters what they are then. It stops at the first error.
func (p *pages) runs(low, high int64, present bool, do func(at driver.Addr, bytes, page int64) error) error {
	end := (high + p.page - 1) / p.page
	for i := low / p.page; i < end; {
		first := i
		for i < end && p.present[i] == present {
			i++
		}
		if first == i {
			i++
			continue
		}
		if err := do(p.base+driver.Addr(first*p.page), (i-first)*p.page, p.page); err != nil {
			return err
		}
		for j := first; j < i; j++ {
			p.present[j] = !present
		}
	}
	return nil
}

// Commit maps what is not mapped of the pages from low to high.
func (p *pages) Commit(low, high int64) error {
	type run struct {
		at    driver.Addr
		bytes int64
	}
	var mapped []run
	err := p.runs(low, high, false, func(at driver.Addr, bytes, page int64) error {
		err := p.device.driver.Map(at, bytes, page)
		if err == nil {
			mapped = append(mapped, run{at, bytes})
		}
		return err
	})
	if err != nil {
		for _, r := range mapped {
			off := int64(r.at - p.base)
			err = errors.Join(err, p.Discard(off, off+r.bytes))
		}
	}
	return err
}

// Discard unmaps the pages from low to high, when the work that may use them is done.
func (p *pages) Discard(low, high int64) error {
	if err := joined(p.device.Sync(), p.device.forgetGraphs()); err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	return p.runs(low, high, true, p.device.driver.Unmap)
}

// Present returns the bytes of the pages that are mapped.
func (p *pages) Present(low, high int64) (bytes int64) {
	for i := low / p.page; i*p.page < high; i++ {
		if p.present[i] {
			bytes += p.page
		}
	}
	return bytes
}

// Release unmaps everything and gives the addresses back.
func (p *pages) Release() error {
	err := p.runs(0, p.size, true, p.device.driver.Unmap)
	return joined(err, p.device.driver.Unreserve(p.base, p.size))
}

// ReadAt copies from the device when queued work is done.
func (p *pages) ReadAt(b []byte, off int64) (int, error) {
	if err := p.device.Sync(); err != nil { // copies in too, which no kernel has waited for
		return 0, err
	}
	return len(b), p.device.read(b, p.base+driver.Addr(off))
}

// WriteAt copies to the device, after queued work.
func (p *pages) WriteAt(b []byte, off int64) (int, error) {
	p.device.mu.Lock()
	defer p.device.mu.Unlock()
	_, err := p.device.write(p.base+driver.Addr(off), b)
	if err == nil {
		err = p.device.driver.Sync(p.device.in)
	}
	return len(b), err
}
