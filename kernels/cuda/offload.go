package cuda

import (
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/memory"
)

var _ memory.Offloader[kernels.Buffer] = (*Device)(nil)

// farMemory is a device's far memory: page-locked host memory, allocated as layouts need it.
type farMemory struct {
	memory.UnbackedRange // far memory has neither pages to discard nor bytes for the processor to access
	device               *Device
	parts                []farPart
	size                 int64
	copies               []driver.Event // by number: the event of the last Store or Load
}

// farPart is a piece of page-locked memory at an offset of the far memory.
type farPart struct {
	offset int64
	mem    []byte
}

// Like returns a new buffer with the same type and number of elements as b, which may have been
// released.
func (d *Device) Like(class memory.Class, b kernels.Buffer) (kernels.Buffer, error) {
	return d.Alloc(class, b.Type, b.N)
}

// NewFarMemory returns new far memory: page-locked host memory, allocated before the step that first needs
// it. The caller must release it before closing the device.
func (d *Device) NewFarMemory() (memory.FarMemory[kernels.Buffer], error) {
	for _, s := range []*driver.Stream{&d.leaving, &d.returning} {
		if *s == 0 {
			var err error
			if *s, err = d.driver.NewStream(); err != nil {
				return nil, err
			}
		}
	}
	return &farMemory{UnbackedRange: farPage, device: d}, nil
}

// farPage is the unit, in bytes, in which far memory grows. It is the page size of most hosts.
const farPage = 4096

// Commit allocates the bytes from the current end to high.
func (f *farMemory) Commit(_, high int64) error {
	if high <= f.size {
		return nil
	}
	mem, err := f.device.driver.HostAlloc(int(high - f.size))
	if err == nil {
		f.parts = append(f.parts, farPart{f.size, mem})
		f.size = high
	}
	return err
}

// Release waits for queued copies and releases the memory.
func (f *farMemory) Release() error {
	d := f.device
	err := joined(d.driver.Sync(d.leaving), d.driver.Sync(d.returning))
	for _, p := range f.parts {
		err = joined(err, d.driver.HostFree(p.mem))
	}
	for _, e := range f.copies {
		err = joined(err, d.driver.FreeEvent(e))
	}
	return err
}

// Begin creates the events of n copies.
func (f *farMemory) Begin(n int) error {
	for len(f.copies) < n {
		e, err := f.device.driver.NewEvent()
		if err != nil {
			return err
		}
		f.copies = append(f.copies, e)
	}
	return nil
}

// Store queues a copy of a buffer to an offset, after the kernels queued so far.
func (f *farMemory) Store(number int32, b kernels.Buffer, offset int64) error {
	return f.queue(f.device.leaving, number, b, offset, func(mem []byte, at driver.Addr) error {
		return f.device.driver.CopyOut(f.device.leaving, mem, at)
	})
}

// Load queues a copy of the bytes at an offset to a buffer. It runs after the kernels queued so
// far, because they may use the buffer's place, or may wait for the Store of these bytes.
func (f *farMemory) Load(number int32, b kernels.Buffer, offset int64) error {
	return f.queue(f.device.returning, number, b, offset, func(mem []byte, at driver.Addr) error {
		return f.device.driver.CopyIn(f.device.returning, at, mem)
	})
}

// queue queues the copies between a buffer on the device and the parts of its place in far
// memory.
func (f *farMemory) queue(s driver.Stream, number int32, b kernels.Buffer, offset int64, transfer func(mem []byte, at driver.Addr) error) error {
	d := f.device
	at, err := d.at(b)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.flushLocked(); err != nil {
		return err
	}
	if err := d.ordered(s); err != nil {
		return err
	}
	end := offset + d.Bytes(b)
	for _, p := range f.parts {
		low, high := max(offset, p.offset), min(end, p.offset+int64(len(p.mem)))
		if low >= high {
			continue
		}
		if err := transfer(p.mem[low-p.offset:high-p.offset], at+driver.Addr(low-offset)); err != nil {
			return err
		}
	}
	return d.driver.Record(f.copies[number], s)
}

// Await makes all subsequently queued kernels wait for a copy, and with them all copies that are
// ordered after those kernels.
func (f *farMemory) Await(number int32) error {
	d := f.device
	d.mu.Lock() // so that the wait does not become part of a capture
	defer d.mu.Unlock()
	return d.driver.Wait(d.compute, f.copies[number])
}
