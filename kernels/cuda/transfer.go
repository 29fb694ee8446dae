package cuda

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/memory"
)

var _ memory.Receiver[kernels.Buffer] = (*Device)(nil)

// chunk is a range of bytes in the device's range, read as a stream.
type chunk struct {
	device *Device
	at     driver.Addr
	left   int64
}

// cut removes the next len(b) bytes from p, or fewer at the end of p.
func (p *chunk) cut(b []byte) ([]byte, driver.Addr) {
	b = b[:min(int64(len(b)), p.left)]
	at := p.at
	p.at, p.left = p.at+driver.Addr(len(b)), p.left-int64(len(b))
	return b, at
}

// Read copies from the device and waits for it.
func (p *chunk) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	b, at := p.cut(b)
	return len(b), p.device.read(b, at)
}

// stream returns a chunk with the bytes of a live buffer.
func (d *Device) stream(b kernels.Buffer) (*chunk, error) {
	p := &chunk{device: d, left: int64(b.N) * b.Type.Bytes()}
	at, err := d.at(b)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.at = at; d.graphs.uses(at, p.left) { // otherwise the deferred pieces need not be queued
		err = d.flushLocked()
	}
	return p, err
}

// fill fills a buffer with data read from r, by queueing copies. The caller owns b.
func (d *Device) fill(b kernels.Buffer, r io.Reader) error {
	p, err := d.stream(b)
	if err != nil {
		return err
	}
	var done driver.Event
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if done != 0 { // a copy may be in flight even after an error
			d.pending = append(d.pending, pending{b.Handle, done})
		}
	}()
	for p.left > 0 {
		chunk, at := p.cut(d.chunk)
		if _, err := io.ReadFull(r, chunk); err != nil {
			return err
		}
		d.mu.Lock()
		done, err = d.write(at, chunk)
		d.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// receive returns a new buffer of class Transfer, which fill has filled. The caller owns it.
func (d *Device) receive(t kernels.DType, n int, fill func(kernels.Buffer) error) (kernels.Buffer, error) {
	b, err := d.Alloc(memory.Transfer, t, n)
	if err != nil {
		return kernels.Buffer{}, err
	}
	if err := fill(b); err != nil {
		_, _ = d.Release(b) // the first error is reported
		return kernels.Buffer{}, err
	}
	return b, nil
}

// peer reports whether copies from another device can avoid host memory.
func (d *Device) peer(src *Device) (may bool, err error) {
	may, known := d.peers[src]
	if !known {
		if may, err = d.driver.Peer(src.driver); err == nil {
			d.peers[src] = may
		}
	}
	return may, err
}

// fromPeer queues a copy of another device's buffer to a whole buffer of d, after the kernels
// queued on both devices. Subsequent kernels on src wait for the copy, so that src may release
// its buffer.
func (d *Device) fromPeer(to kernels.Buffer, src *Device, b kernels.Buffer) error {
	from, err := src.stream(b)
	if err != nil {
		return err
	}
	at, err := d.at(to)
	if err != nil {
		return err
	}
	src.mu.Lock()
	if err = src.driver.Record(src.before, src.compute); err == nil {
		err = d.driver.Wait(d.in, src.before)
	}
	src.mu.Unlock()
	if err != nil {
		return err
	}
	if err := d.copyPeer(to, at, src, from); err != nil {
		return err
	}
	src.mu.Lock() // so that the wait does not become part of a capture on src
	defer src.mu.Unlock()
	return src.driver.Wait(src.compute, d.arrival)
}

// copyPeer queues the copy.
func (d *Device) copyPeer(to kernels.Buffer, at driver.Addr, src *Device, from *chunk) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.flushLocked(); err != nil {
		return err
	}
	if err := d.ordered(d.in); err != nil {
		return err
	}
	if err := d.driver.CopyPeer(d.in, at, src.driver, from.at, from.left); err != nil {
		return err
	}
	if err := d.driver.Record(d.arrival, d.in); err != nil {
		return err
	}
	d.pending = append(d.pending, pending{to.Handle, d.arrival})
	return nil
}

// Receive copies a buffer of another rank in the same process to a new buffer of class Transfer,
// owned by the caller. It copies directly from another Device if the machine supports that, and
// otherwise through page-locked host memory.
func (d *Device) Receive(from memory.Space[kernels.Buffer], b kernels.Buffer) (kernels.Buffer, error) {
	switch src := from.(type) {
	case *Device:
		may, err := d.peer(src)
		if err != nil {
			return kernels.Buffer{}, fmt.Errorf("cuda: Receive: %w", err)
		}
		return d.receive(b.Type, b.N, func(to kernels.Buffer) error {
			if may {
				return d.fromPeer(to, src, b)
			}
			p, err := src.stream(b)
			if err != nil {
				return err
			}
			return d.fill(to, p)
		})
	case kernels.Device:
		return kernels.Transfer(d, src, b)
	}
	return kernels.Buffer{}, fmt.Errorf("%w: Receive from a %T", kernels.ErrNoLender, from)
}

// header is the size of the header that Encode writes before the elements: the type in the
// highest byte, and the number of elements, as in kernels.Host.
const (
	header = 8
	count  = 1<<56 - 1
)

// Size returns the number of bytes that Encode writes for a buffer.
func (d *Device) Size(b kernels.Buffer) int64 { return header + int64(b.N)*b.Type.Bytes() }

// Encode writes the same bytes as kernels.Host. It may be called from any goroutine, and waits
// for the work that was queued before the call; see transport.Codec.
func (d *Device) Encode(w io.Writer, b kernels.Buffer) error {
	p, err := d.stream(b)
	if err != nil {
		return err
	}
	var head [header]byte
	binary.LittleEndian.PutUint64(head[:], uint64(b.Type)<<56|uint64(b.N))
	if _, err = w.Write(head[:]); err == nil {
		_, err = io.Copy(w, p)
	}
	return err
}

// Decode reads the output of Encode into a new buffer of class Transfer, owned by the caller.
func (d *Device) Decode(r io.Reader, size int64) (kernels.Buffer, error) {
	var head [header]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return kernels.Buffer{}, err
	}
	word := binary.LittleEndian.Uint64(head[:])
	t, n := kernels.DType(word>>56), int64(word&count)
	if t > kernels.Uint8 || n < 1 || n > count/4 || header+n*t.Bytes() != size {
		return kernels.Buffer{}, fmt.Errorf("%w: Decode: %d elements of %s in %d bytes", kernels.ErrShape, n, t, size)
	}
	return d.receive(t, int(n), func(b kernels.Buffer) error { return d.fill(b, r) })
}
