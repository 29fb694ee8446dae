package cuda

import (
	"fmt"
	"unsafe"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// staging is page-locked memory for copies, divided into slots that are used cyclically.
type staging struct {
	slots [stagingSlots]slot
	next  int
	read  []byte // for copies from the device
}

// slot is a part of the staging memory, with the event of the last copy that used it.
type slot struct {
	mem  []byte
	done driver.Event
}

const (
	stagingSlots = 8
	stagingBytes = 1 << 20
)

func (s *staging) open(d driver.Driver) (err error) {
	for i := range s.slots {
		slot := &s.slots[i]
		if slot.done, err = d.NewEvent(); err != nil {
			return err
		}
		if slot.mem, err = d.HostAlloc(stagingBytes); err != nil {
			return err
		}
	}
	s.read, err = d.HostAlloc(stagingBytes)
	return err
}

func (s *staging) close(d driver.Driver) (err error) {
	for i := range s.slots {
		if slot := &s.slots[i]; slot.done != 0 {
			err = joined(err, d.FreeEvent(slot.done))
			if slot.mem != nil {
				err = joined(err, d.HostFree(slot.mem))
			}
		}
	}
	if s.read != nil {
		err = joined(err, d.HostFree(s.read))
	}
	*s = staging{}
	return err
}

// ordered makes all work subsequently queued on a stream run after the kernels queued so far. mu
// must be held.
func (d *Device) ordered(s driver.Stream) error {
	if err := d.driver.Record(d.before, d.compute); err != nil {
		return err
	}
	return d.driver.Wait(s, d.before)
}

// write queues a copy to the device, after the kernels queued so far, and returns the event that
// signals its completion. from may be modified as soon as write returns.
func (d *Device) write(to driver.Addr, from []byte) (done driver.Event, err error) {
	if err := d.flushLocked(); err != nil {
		return 0, err
	}
	if err := d.ordered(d.in); err != nil {
		return 0, err
	}
	for len(from) > 0 {
		slot := &d.staging.slots[d.staging.next]
		d.staging.next = (d.staging.next + 1) % stagingSlots
		done = slot.done
		if err := d.driver.Done(done); err != nil { // wait for the copy that used the slot before
			return 0, err
		}
		n := copy(slot.mem, from)
		if err := d.driver.CopyIn(d.in, to, slot.mem[:n]); err != nil {
			return 0, err
		}
		if err := d.driver.Record(done, d.in); err != nil {
			return 0, err
		}
		to, from = to+driver.Addr(n), from[n:]
	}
	return done, nil
}

// read copies from the device, after the kernels queued so far, and waits for the copy.
func (d *Device) read(to []byte, from driver.Addr) error {
	d.reading.Lock() // not mu, because other goroutines use the device while this one waits
	defer d.reading.Unlock()
	d.mu.Lock()
	err := d.ordered(d.out)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	for len(to) > 0 {
		n := min(len(to), len(d.staging.read))
		if err := d.driver.CopyOut(d.out, d.staging.read[:n], from); err != nil {
			return err
		}
		if err := d.driver.Sync(d.out); err != nil {
			return err
		}
		copy(to[:n], d.staging.read)
		to, from = to[n:], from+driver.Addr(n)
	}
	return nil
}

// element is the type of a buffer element.
type element interface{ float32 | int32 | uint8 }

// raw returns elements as bytes.
func raw[E element](x []E) []byte {
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(e)))
}

// fits requires a buffer of type t with at least n elements.
func fits(op string, b kernels.Buffer, t kernels.DType, n int) error {
	if b.Type != t || b.N < n {
		return fmt.Errorf("%w: %s: the buffer has %d elements of %s, the call has %d of %s", kernels.ErrShape, op, b.N, b.Type, n, t)
	}
	return nil
}

func write[E element](d *Device, op string, t kernels.DType, dst kernels.Buffer, src []E) error {
	if err := fits(op, dst, t, len(src)); err != nil || len(src) == 0 {
		return err
	}
	at, err := d.at(dst)
	if err != nil {
		return fmt.Errorf("cuda: %s: %w", op, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	done, err := d.write(at, raw(src))
	if err != nil {
		return fmt.Errorf("cuda: %s: %w", op, err)
	}
	d.pending = append(d.pending, pending{dst.Handle, done})
	return nil
}

func read[E element](d *Device, op string, t kernels.DType, dst []E, src kernels.Buffer) error {
	if err := fits(op, src, t, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	at, err := d.at(src)
	if err == nil {
		err = d.flush()
	}
	if err == nil {
		err = d.read(raw(dst), at)
	}
	if err != nil {
		return fmt.Errorf("cuda: %s: %w", op, err)
	}
	return nil
}

// WriteFloat32 queues a copy of src to the start of dst. src may be modified as soon as it
// returns.
func (d *Device) WriteFloat32(dst kernels.Buffer, src []float32) error {
	return write(d, "WriteFloat32", kernels.Float32, dst, src)
}

// WriteInt32 queues a copy of src to the start of dst. src may be modified as soon as it returns.
func (d *Device) WriteInt32(dst kernels.Buffer, src []int32) error {
	err := write(d, "WriteInt32", kernels.Int32, dst, src)
	if err == nil && len(src) > 0 {
		d.wrote(dst, src)
	}
	return err
}

// WriteUint8 queues a copy of src to the start of dst. src may be modified as soon as it returns.
func (d *Device) WriteUint8(dst kernels.Buffer, src []uint8) error {
	return write(d, "WriteUint8", kernels.Uint8, dst, src)
}

// ReadFloat32 waits for the work queued so far and copies len(dst) elements from the start of
// src.
func (d *Device) ReadFloat32(dst []float32, src kernels.Buffer) error {
	return read(d, "ReadFloat32", kernels.Float32, dst, src)
}

// ReadInt32 waits for the work queued so far and copies len(dst) elements from the start of src.
func (d *Device) ReadInt32(dst []int32, src kernels.Buffer) error {
	return read(d, "ReadInt32", kernels.Int32, dst, src)
}

// ReadUint8 waits for the work queued so far and copies len(dst) elements from the start of src.
func (d *Device) ReadUint8(dst []uint8, src kernels.Buffer) error {
	return read(d, "ReadUint8", kernels.Uint8, dst, src)
}
