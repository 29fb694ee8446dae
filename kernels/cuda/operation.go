package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"unsafe"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/ptx"
)

// ErrMissing is returned by an operation that the host supports and this device does not. The
// device never falls back to the host. The blocks of package transformer compare the size of their
// heads with the limit of the device (kernels.HeadLimit) when they are built, so they fail before
// the first step, with an error of their own.
var ErrMissing = errors.New("cuda: the device lacks the operation")

// scratchBytes is the size of the device memory that holds results of a few words, the per-token
// state of HeadLoss, and the words that graphs read.
const (
	varyingAt    = headRows + 24*headTokens // offset of the words that graphs read
	scratchBytes = varyingAt + 8*maxVarying
)

// libraryBytes is the size of the library's workspace on the device: the recommendation of
// cuBLAS for Hopper.
const libraryBytes = 32 << 20

// openOperations loads the kernels and allocates scratch memory in separate pages.
func (d *Device) openOperations() error {
	names, err := fs.Glob(ptx.Files, "*.ptx")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(ptx.Files, name)
		if err != nil {
			return err
		}
		if err := d.load(string(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	page, bytes := d.scratchPages()
	at, err := d.driver.Reserve(bytes)
	if err != nil {
		return err
	}
	if err := d.driver.Map(at, bytes, page); err != nil {
		return joined(err, d.driver.Unreserve(at, bytes))
	}
	d.scratch = at
	d.checks = d.Checks(d)
	if d.library != nil {
		return d.library.Bind(d.compute, at+driver.Addr(bytes-libraryBytes), libraryBytes)
	}
	return nil
}

// closeOperations releases scratch memory.
func (d *Device) closeOperations() error {
	if d.scratch == 0 {
		return nil
	}
	page, bytes := d.scratchPages()
	return joined(d.driver.Unmap(d.scratch, bytes, page), d.driver.Unreserve(d.scratch, bytes))
}

// scratchPages returns the device's page size, and the size of scratch memory, rounded up to
// whole pages. The last libraryBytes belong to the library, if there is one.
func (d *Device) scratchPages() (page, bytes int64) {
	page, bytes = d.driver.Properties().Page, scratchBytes
	if d.library != nil {
		bytes += libraryBytes
	}
	return page, (bytes + page - 1) / page * page
}

// operation is the state of a call to an operation while its kernels are queued. err keeps the
// first error, after which nothing more is queued.
type operation struct {
	device *Device
	name   string
	err    error
}

// begin begins an operation. refused is the error that the host's checks returned, or nil.
func (d *Device) begin(name string, refused error) operation {
	return operation{device: d, name: name, err: refused}
}

// end returns the error of the operation.
func (o *operation) end() error {
	if o.err == nil {
		return nil
	}
	return fmt.Errorf("cuda: %s: %w", o.name, o.err)
}

// at returns the address of a buffer, or 0 for the zero Buffer.
func (o *operation) at(b kernels.Buffer) uint64 {
	if o.err != nil {
		return 0
	}
	at, err := o.device.at(b)
	o.err = err
	return uint64(at)
}

// fits requires dimensions to be within the range of the kernels' integers.
func (o *operation) fits(dimensions ...int) {
	for _, n := range dimensions {
		if n > math.MaxInt32 && o.err == nil {
			o.err = fmt.Errorf("%w: a dimension of %d", kernels.ErrShape, n)
		}
	}
}

// launch queues a kernel on a grid of columns×rows blocks.
func (o *operation) launch(kernel string, columns, rows, threads int, args ...uint64) {
	const maxColumns, maxRows = math.MaxInt32, 65535 // limits of every GPU
	if (columns > maxColumns || rows > maxRows) && o.err == nil {
		o.err = fmt.Errorf("%w: %d by %d blocks of %s, want at most %d by %d", kernels.ErrShape, columns, rows, kernel, maxColumns, maxRows)
	}
	if o.err == nil {
		o.err = o.device.launch(kernel, [3]uint32{uint32(columns), uint32(rows), 1}, [3]uint32{uint32(threads), 1, 1}, args...)
	}
}

// line queues a kernel on a one-dimensional grid of blocks.
func (o *operation) line(kernel string, blocks, threads int, args ...uint64) {
	o.launch(kernel, blocks, 1, threads, args...)
}

// each queues an elementwise kernel over n elements, whose result does not depend on the number
// of threads.
func (o *operation) each(kernel string, n int, args ...uint64) {
	const threads, maxBlocks = 256, 1 << 14
	o.line(kernel, min((n+threads-1)/threads, maxBlocks), threads, args...)
}

// zero queues a fill of n float32 with 0.
func (o *operation) zero(at uint64, n int) {
	if o.err == nil {
		o.err = o.device.queue(piece{varies: -1}, at, 0, 4*uint64(n))
	}
}

// copy queues a copy of n float32.
func (o *operation) copy(to, from uint64, n int) {
	if o.err == nil {
		o.err = o.device.queue(piece{varies: -1}, to, from, 4*uint64(n))
	}
}

// words waits for the queued work and reads words of its result.
func words[T float64 | uint32](o *operation, dst []T, at driver.Addr) {
	if o.err == nil {
		var e T
		if o.err = o.device.flush(); o.err != nil {
			return
		}
		o.err = o.device.read(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), len(dst)*int(unsafe.Sizeof(e))), at)
	}
}

// word returns a float32 as a kernel argument.
func word(x float32) uint64 { return uint64(math.Float32bits(x)) }

// flag returns a condition as a kernel argument.
func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
