package cuda

import (
	"errors"

	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// pages is a device's memory.Range: one reservation, in which every mapped page is a separate
// allocation, so that it can be unmapped alone.
type pages struct {
	device  *Device
	page    int64
	base    driver.Addr
	size    int64
	present []bool
}

// Page returns the size of a page in bytes.
func (p *pages) Page() int64 { return p.page }

// Reserve reserves the addresses.
func (p *pages) Reserve(bytes int64) (err error) {
	if p.base, err = p.device.driver.Reserve(bytes); err == nil {
		p.size, p.present = bytes, make([]bool, bytes/p.page)
	}
	return err
}

// runs calls do for each run of pages from low to high whose presence equals present, and then
// inverts their presence. It stops at the first error.
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

// Commit maps the pages from low to high that are not mapped.
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

// Discard unmaps the pages from low to high, once the work that may use them is done.
func (p *pages) Discard(low, high int64) error {
	if err := joined(p.device.Sync(), p.device.forgetGraphs()); err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	return p.runs(low, high, true, p.device.driver.Unmap)
}

// Present returns the total size, in bytes, of the mapped pages from low to high.
func (p *pages) Present(low, high int64) (bytes int64) {
	for i := low / p.page; i*p.page < high; i++ {
		if p.present[i] {
			bytes += p.page
		}
	}
	return bytes
}

// Release unmaps everything and releases the addresses.
func (p *pages) Release() error {
	err := p.runs(0, p.size, true, p.device.driver.Unmap)
	return joined(err, p.device.driver.Unreserve(p.base, p.size))
}

// ReadAt copies from the device once the queued work is done.
func (p *pages) ReadAt(b []byte, off int64) (int, error) {
	if err := p.device.Sync(); err != nil { // includes copies that no kernel has waited for
		return 0, err
	}
	return len(b), p.device.read(b, p.base+driver.Addr(off))
}

// WriteAt copies to the device, after the queued work.
func (p *pages) WriteAt(b []byte, off int64) (int, error) {
	p.device.mu.Lock()
	defer p.device.mu.Unlock()
	_, err := p.device.write(p.base+driver.Addr(off), b)
	if err == nil {
		err = p.device.driver.Sync(p.device.in)
	}
	return len(b), err
}
