package fakecuda

import (
	"unsafe"

	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/ptx"
	"github.com/weir-ml/weir/memory"
)

// area is a reserved range.
type area struct {
	base    driver.Addr
	mem     []byte
	written []byte // by byte: not 0 if it was written
	mapped  []bool // by page
}

// find returns the reserved range that contains an address, or nil.
func (d *Driver) find(at driver.Addr) *area {
	for _, a := range d.ranges {
		if at >= a.base && at-a.base < driver.Addr(len(a.mem)) {
			return a
		}
	}
	return nil
}

// Reserve reserves a range, far from other ranges.
func (d *Driver) Reserve(bytes int64) (base driver.Addr, err error) {
	err = d.call("Reserve", func() error {
		if bytes <= 0 || bytes%d.facts.Page != 0 {
			return refuse("Reserve", driver.ErrInvalid, "%d bytes, want a multiple of %d", bytes, d.facts.Page)
		}
		base = 0x7e0000000000
		if n := len(d.ranges); n > 0 {
			base = d.ranges[n-1].base + driver.Addr(len(d.ranges[n-1].mem)) + 1<<32
		}
		d.ranges = append(d.ranges, &area{base, make([]byte, bytes), make([]byte, bytes), make([]bool, bytes/d.facts.Page)})
		return nil
	})
	return base, err
}

// Unreserve releases a range.
func (d *Driver) Unreserve(at driver.Addr, bytes int64) error {
	return d.call("Unreserve", func() error {
		for i, a := range d.ranges {
			if a.base != at || int64(len(a.mem)) != bytes {
				continue
			}
			for p, mapped := range a.mapped {
				if mapped {
					return refuse("Unreserve", driver.ErrInvalid, "page %d is mapped", p)
				}
			}
			d.ranges = append(d.ranges[:i], d.ranges[i+1:]...)
			return nil
		}
		return refuse("Unreserve", driver.ErrInvalid, "no range of %d bytes at %#x", bytes, at)
	})
}

// Map maps pages.
func (d *Driver) Map(at driver.Addr, bytes, page int64) error {
	return d.change("Map", at, bytes, page, true)
}

// Unmap unmaps pages and discards their contents.
func (d *Driver) Unmap(at driver.Addr, bytes, page int64) error {
	return d.change("Unmap", at, bytes, page, false)
}

func (d *Driver) change(call string, at driver.Addr, bytes, page int64, mapped bool) error {
	return d.call(call, func() error {
		a := d.find(at)
		if a == nil || page != d.facts.Page || bytes <= 0 || bytes%page != 0 || int64(at-a.base)%page != 0 || int64(at-a.base)+bytes > int64(len(a.mem)) {
			return refuse(call, driver.ErrInvalid, "%d bytes at %#x in pages of %d", bytes, at, page)
		}
		first, n := int64(at-a.base)/page, bytes/page
		for i := first; i < first+n; i++ {
			if a.mapped[i] == mapped {
				return refuse(call, driver.ErrInvalid, "page %d is already mapped: %t", i, mapped)
			}
		}
		if mapped && d.used+bytes > d.facts.Total {
			return refuse(call, driver.ErrOutOfMemory, "%d bytes, %d of %d are free", bytes, d.facts.Total-d.used, d.facts.Total)
		}
		if !mapped && d.queued() > 0 {
			return refuse(call, driver.ErrInvalid, "%d pieces of work are queued", d.queued())
		}
		for i := first; i < first+n; i++ {
			a.mapped[i] = mapped
		}
		clear(a.written[first*page : (first+n)*page])
		if d.used += bytes; !mapped {
			d.used -= 2 * bytes
		}
		return nil
	})
}

// HostAlloc allocates host memory.
func (d *Driver) HostAlloc(bytes int) (mem []byte, err error) {
	err = d.call("HostAlloc", func() error {
		mem = make([]byte, bytes)
		d.host = append(d.host, mem)
		return nil
	})
	return mem, err
}

// HostFree releases host memory.
func (d *Driver) HostFree(mem []byte) error {
	return d.call("HostFree", func() error {
		for i, h := range d.host {
			if &h[0] == &mem[0] && len(h) == len(mem) {
				d.host = append(d.host[:i], d.host[i+1:]...)
				return nil
			}
		}
		return refuse("HostFree", driver.ErrInvalid, "%d bytes that are not from HostAlloc", len(mem))
	})
}

// locked reports whether bytes are in memory from HostAlloc.
func (d *Driver) locked(mem []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	for _, h := range d.host {
		if low := uintptr(unsafe.Pointer(unsafe.SliceData(h))); at >= low && at+uintptr(len(mem)) <= low+uintptr(len(h)) {
			return true
		}
	}
	return false
}

// region returns the buffer that contains an address, and whether no work has touched it yet.
// Outside the range that Follow limits, it returns the run of mapped pages around the address, and
// false.
func (d *Driver) region(call string, at driver.Addr) (*ptx.Region, bool, error) {
	a := d.find(at)
	if a == nil {
		return nil, false, refuse(call, driver.ErrInvalid, "address %#x is in no range", at)
	}
	page := d.facts.Page
	off := int64(at - a.base)
	low, high := off/page*page, off/page*page
	for high < int64(len(a.mem)) && a.mapped[high/page] {
		high += page
	}
	for low > 0 && a.mapped[low/page-1] {
		low -= page
	}
	fresh := false
	if d.live != nil && a == d.ranges[0] {
		b, ok := d.buffer(off)
		if !ok {
			return nil, false, refuse(call, driver.ErrInvalid, "no live buffer has byte %d of the range", off)
		}
		if b.Offset < low || b.Offset+b.Bytes > high {
			return nil, false, refuse(call, driver.ErrInvalid, "the buffer of %d bytes at byte %d of the range has no pages", b.Bytes, b.Offset)
		}
		low, high = b.Offset, b.Offset+b.Bytes
		fresh, d.seen[b.Serial] = !d.seen[b.Serial], true
	}
	if off >= high {
		return nil, false, refuse(call, driver.ErrInvalid, "address %#x has no page", at)
	}
	return &ptx.Region{Base: uint64(a.base) + uint64(low), Data: a.mem[low:high:high], Written: a.written[low:high:high]}, fresh, nil
}

// buffer returns the live buffer that contains a byte of the range.
func (d *Driver) buffer(off int64) (memory.Info, bool) {
	for b := range d.live() {
		if off >= b.Offset && off < b.Offset+b.Bytes {
			return b, true
		}
	}
	return memory.Info{}, false
}
