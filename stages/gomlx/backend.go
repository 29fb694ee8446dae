package gomlx

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	_ "github.com/gomlx/compute/gobackend" // the backend "go", the default
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/weir-ml/weir/memory"
)

// Backend is a backend of GoMLX that accounts for memory: it records the creation and the release of
// every buffer, both those of stages and those that GoMLX creates for variables, optimizers and
// datasets. It is a compute.Backend, for model.Exec and train.Trainer.
type Backend struct {
	compute.Backend
	model *Device    // accounts for buffers created through compute.Backend
	build sync.Mutex // GoMLX's store can build one graph at a time
}

// NewBackend opens a backend by GoMLX's name and configuration, such as "go" or "xla:cuda"; ""
// means "go". Backends other than "go" must be imported by the program.
func NewBackend(config string) (*Backend, error) {
	if config == "" {
		config = "go"
	}
	var base compute.Backend
	var err error
	if caught := exceptions.TryCatch[error](func() { base, err = compute.NewWithConfig(config) }); caught != nil {
		err = caught
	}
	if err != nil {
		return nil, fmt.Errorf("gomlx: backend %q: %w", config, err)
	}
	b := &Backend{Backend: base}
	b.model = b.device()
	return b, nil
}

func (b *Backend) device() *Device { return &Device{backend: b, made: map[*Buffer]struct{}{}} }

// Builder returns a builder whose executables account for their buffers.
func (b *Backend) Builder(name string) compute.Builder {
	return &builder{b.Backend.Builder(name), b}
}

// BufferFromFlatData copies data into a new buffer.
func (b *Backend) BufferFromFlatData(device compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	raw, err := b.Backend.BufferFromFlatData(device, flat, shape)
	if err != nil {
		return nil, err
	}
	return b.model.own(raw, shape, memory.Resident), nil
}

// NewSharedBuffer creates a buffer that the host can access.
func (b *Backend) NewSharedBuffer(device compute.DeviceNum, shape shapes.Shape) (compute.Buffer, any, error) {
	raw, flat, err := b.Backend.NewSharedBuffer(device, shape)
	if err != nil {
		return nil, nil, err
	}
	return b.model.own(raw, shape, memory.Resident), flat, nil
}

type builder struct {
	compute.Builder
	backend *Backend
}

func (b *builder) Compile() (compute.Executable, error) {
	made, err := b.Builder.Compile()
	if err != nil {
		return nil, err
	}
	return &executable{made, b.backend, made.Outputs()}, nil
}

type executable struct {
	compute.Executable
	backend *Backend
	outputs []shapes.Shape
}

// Execute is called by GoMLX itself. Its outputs are of class Resident.
func (e *executable) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	in := make([]*Buffer, len(inputs))
	for i, input := range inputs {
		in[i], _ = input.(*Buffer)
	}
	raws, err := e.run(in, donate, device)
	if err != nil {
		return nil, err
	}
	out := make([]compute.Buffer, len(raws))
	for i, raw := range raws {
		shape, err := raw.Shape()
		if err != nil {
			return nil, err
		}
		out[i] = e.backend.model.own(raw, shape, memory.Resident)
	}
	return out, nil
}

// run executes the program, and removes the donated inputs from their books, even if the execution
// fails. The caller accounts for the outputs.
func (e *executable) run(inputs []*Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	raws := make([]compute.Buffer, len(inputs))
	for i, b := range inputs {
		if b == nil || b.raw == nil {
			return nil, fmt.Errorf("gomlx: input %d of an executable: %w", i, memory.ErrStale)
		}
		raws[i] = b.raw
	}
	for i, b := range inputs {
		if donate != nil && donate[i] {
			b.raw = nil
			b.device.leave(b)
		}
	}
	out, err := e.Executable.Execute(raws, donate, device)
	if err != nil {
		return nil, fmt.Errorf("gomlx: %w", err)
	}
	return out, nil
}

// Buffer is a buffer of a [Device]: the handle of a runner, and a compute.Buffer of GoMLX. It
// is freed with the last reference that the device counts, or by Finalize if GoMLX owns it.
type Buffer struct {
	raw     compute.Buffer // nil once it is freed or donated
	backend *Backend
	device  *Device
	shape   shapes.Shape
	class   memory.Class
	bytes   int64
	plain   int64
	held    int64
	serial  uint64
	shared  bool     // made by Device.share: backends do not accept it as a donated input
	variant *variant // set only in a ticket: the programs of its microbatch
}

// T is the handle type.
type T = *Buffer

// Bytes returns the size of the buffer in bytes.
func (b *Buffer) Bytes() int64 { return b.bytes }

func (b *Buffer) Backend() compute.Backend              { return b.backend }
func (b *Buffer) Shape() (shapes.Shape, error)          { return b.shape, nil }
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }
func (b *Buffer) Data() (any, error)                    { return onRaw(b, compute.Buffer.Data) }
func (b *Buffer) ToFlatData(flat any) error {
	_, err := onRaw(b, func(raw compute.Buffer) (any, error) { return nil, raw.ToFlatData(flat) })
	return err
}

// CopyToDevice copies within the backend's only device.
func (b *Buffer) CopyToDevice(to compute.DeviceNum) (compute.Buffer, error) {
	raw, err := onRaw(b, func(raw compute.Buffer) (compute.Buffer, error) { return raw.CopyToDevice(to) })
	if err != nil {
		return nil, err
	}
	return b.backend.model.own(raw, b.shape, memory.Resident), nil
}

// Finalize frees the buffer. A second call returns an error that wraps memory.ErrStale.
func (b *Buffer) Finalize() error {
	_, err := onRaw(b, func(raw compute.Buffer) (any, error) { return nil, raw.Finalize() })
	if err == nil {
		b.raw = nil
		b.plain, b.held = 0, 0
		b.device.leave(b)
	}
	return err
}

func onRaw[R any](b *Buffer, call func(compute.Buffer) (R, error)) (R, error) {
	if b == nil || b.raw == nil {
		var none R
		return none, fmt.Errorf("gomlx: %w", memory.ErrStale)
	}
	return call(b.raw)
}

// Device is the space of a rank, with the allocator's book: it accounts for buffers as the
// backend creates and finalizes them. A backend has one device for each rank; with a single
// rank, its book also contains the buffers that GoMLX itself creates.
type Device struct {
	backend *Backend
	mu      sync.Mutex // GoMLX may finalize on any goroutine
	meter   memory.Meter
	made    map[*Buffer]struct{} // the live buffers
	serial  uint64
	begin   func()              // called at the start of a step
	changed func(memory.Change) // set by Watch; nil reports nothing
}

var (
	_ memory.Space[T]   = (*Device)(nil)
	_ memory.Book       = (*Device)(nil)
	_ memory.Reclaimer  = (*Device)(nil)
	_ memory.Watched[T] = (*Device)(nil)
)

// own accounts for a buffer that the backend has created. The caller owns its only reference.
func (d *Device) own(raw compute.Buffer, shape shapes.Shape, class memory.Class) *Buffer {
	b := &Buffer{raw: raw, backend: d.backend, shape: shape, class: class, bytes: shape.ByteSize(), plain: 1}
	d.enter(b)
	d.report(memory.Allocated, b)
	return b
}

// Watch calls changed for every change of the references of a buffer, in a dry run of the stages.
func (d *Device) Watch(changed func(memory.Change)) { d.changed = changed }

// report passes a change to the function set by Watch, except for tickets, which have no memory.
func (d *Device) report(op memory.ChangeOp, b T) {
	if d.changed != nil && b.variant == nil {
		d.changed(memory.Change{Op: op, Serial: b.serial, Bytes: b.bytes, Class: b.class})
	}
}

// Serial returns the number of the buffer, and whether it is live.
func (d *Device) Serial(b T) (uint64, bool) {
	if b == nil || b.raw == nil {
		return 0, false
	}
	return b.serial, true
}

// enter adds a buffer to the book.
func (d *Device) enter(b *Buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b.device, b.serial = d, d.serial
	d.serial++
	d.made[b] = struct{}{}
	d.meter.Alloc(b.class, b.bytes)
}

// leave removes a buffer from the book.
func (d *Device) leave(b *Buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.made, b)
	d.meter.Free(b.class, b.bytes)
}

// adopt moves a buffer into the book of d.
func (d *Device) adopt(b *Buffer) {
	if b.device != d {
		b.device.leave(b)
		d.enter(b)
	}
}

// Put copies flat data into a new buffer, whose only reference the caller owns.
func (d *Device) Put(class memory.Class, flat any, shape shapes.Shape) (T, error) {
	raw, err := d.backend.Backend.BufferFromFlatData(0, flat, shape)
	if err != nil {
		return nil, fmt.Errorf("gomlx: %w", err)
	}
	return d.own(raw, shape, class), nil
}

// Floats creates a buffer of float32 values.
func (d *Device) Floats(class memory.Class, values []float32, dimensions ...int) (T, error) {
	return d.Put(class, values, shapes.Make(dtypes.Float32, dimensions...))
}

// run executes a program of the stages. The program adds gradients to the accumulators, which are
// donated, and returns the sums as its last outputs; these become the memory of the accumulators.
// If the execution fails, donated accumulators get new memory, filled with zeros.
func (d *Device) run(e *executable, inputs []T, donate []bool, classes []memory.Class, accumulators []T) ([]T, error) {
	raws, err := e.run(inputs, donate, 0)
	out := make([]T, len(classes))
	for i, class := range classes {
		if err == nil {
			out[i] = d.own(raws[i], e.outputs[i], class)
		}
	}
	for i, b := range accumulators {
		raw := compute.Buffer(nil)
		if err == nil {
			raw = raws[len(classes)+i]
		} else if raw, _ = d.backend.Backend.BufferFromFlatData(0, make([]float32, b.shape.Size()), b.shape); raw == nil || b.raw != nil {
			continue
		}
		b.raw = raw
		d.enter(b)
	}
	return out, err
}

// Live returns the total size of the live buffers in bytes.
func (d *Device) Live() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meter.Live()
}

// Stats fills s. It does not include the backend's own pool: see Programs.
func (d *Device) Stats(s *memory.Stats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meter.Stats(s)
	s.Reserved = s.Live
}

// ResetPeak sets the peak to the live bytes.
func (d *Device) ResetPeak() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meter.ResetPeak()
}

// Mark returns the current position in the order of allocations. The runner calls it when a step
// begins.
func (d *Device) Mark() uint64 {
	if d.begin != nil {
		d.begin()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.serial
}

// Reclaim finalizes every buffer created since mark that is not Resident, and returns their size in
// bytes.
func (d *Device) Reclaim(mark uint64) (freed int64) {
	d.mu.Lock()
	var lost []*Buffer
	for b := range d.made {
		if b.serial >= mark && b.class != memory.Resident {
			lost = append(lost, b)
		}
	}
	d.mu.Unlock()
	slices.SortFunc(lost, func(a, b *Buffer) int { return int(a.serial) - int(b.serial) })
	for _, b := range lost {
		if b.Finalize() == nil {
			freed += b.bytes
		}
	}
	return freed
}

// Bytes returns the size of the buffer in bytes, or 0 for nil.
func (d *Device) Bytes(b T) int64 {
	if b == nil {
		return 0
	}
	return b.bytes
}

// Class returns the class of the buffer, or 0 for nil.
func (d *Device) Class(b T) memory.Class {
	if b == nil {
		return 0
	}
	return b.class
}

// Retain adds a plain reference.
func (d *Device) Retain(b T) error {
	_, err := d.count("retain", b, 1, 0)
	if err == nil {
		d.report(memory.Retained, b)
	}
	return err
}

// Release releases a plain reference. With the last one it finalizes the buffer, unless it was
// donated, and returns its size.
func (d *Device) Release(b T) (freed int64, err error) {
	left, err := d.count("release", b, -1, 0)
	if err == nil {
		d.report(memory.Released, b)
	}
	if err != nil || left > 0 {
		return 0, err
	}
	if b.raw == nil { // donated in this action, or a ticket
		return b.bytes, nil
	}
	return b.bytes, b.Finalize()
}

// Hold converts a plain reference into a held one. It returns the buffer's size if this is its only
// held reference, and 0 otherwise.
func (d *Device) Hold(b T) (held int64, err error) {
	if _, err = d.count("hold", b, -1, 1); err != nil || b.held > 1 {
		return 0, err
	}
	return b.bytes, nil
}

// Unhold converts a held reference into a plain one. It returns the buffer's size if this was its
// last held reference, and 0 otherwise.
func (d *Device) Unhold(b T) (unheld int64, err error) {
	if _, err = d.count("yield", b, 1, -1); err != nil || b.held > 0 {
		return 0, err
	}
	return b.bytes, nil
}

// count adds plain and held to the counts of references of a buffer, and returns the number of
// references left.
func (d *Device) count(call string, b T, plain, held int64) (left int64, err error) {
	switch {
	case b == nil:
		err = memory.ErrNone
	case b.plain+b.held == 0:
		err = memory.ErrStale
	case b.device != d:
		err = memory.ErrOtherArena
	case b.plain+plain < 0:
		err = memory.ErrNoPlain
	case b.held+held < 0:
		err = memory.ErrNotHeld
	default:
		b.plain += plain
		b.held += held
		return b.plain + b.held, nil
	}
	return 0, fmt.Errorf("gomlx: %s: %w", call, err)
}

// edit calls f with the values of a buffer on the host, and writes the changes back.
func (d *Device) edit(b T, f func(x []float32)) error {
	if d.backend.HasSharedBuffers() {
		flat, err := b.Data()
		if err == nil {
			f(flat.([]float32))
		}
		return err
	}
	x := make([]float32, b.shape.Size())
	if err := b.ToFlatData(x); err != nil {
		return err
	}
	f(x)
	raw, err := d.backend.Backend.BufferFromFlatData(0, x, b.shape)
	if err != nil {
		return err
	}
	old := b.raw
	b.raw = raw
	return old.Finalize()
}

// read returns a copy of the values of a float32 buffer.
func (d *Device) read(b T) ([]float32, error) {
	x := make([]float32, b.shape.Size())
	return x, b.ToFlatData(x)
}

// Zero sets a gradient to zero.
func (d *Device) Zero(g T) error { return d.edit(g, func(x []float32) { clear(x) }) }

// Add adds src to dst.
func (d *Device) Add(dst, src T) error {
	from, err := d.read(src)
	if err != nil {
		return err
	}
	return d.edit(dst, func(x []float32) {
		for i, v := range from {
			x[i] += v
		}
	})
}

// Copy sets dst to src.
func (d *Device) Copy(dst, src T) error {
	from, err := d.read(src)
	if err != nil {
		return err
	}
	return d.edit(dst, func(x []float32) { copy(x, from) })
}

// SumSquares returns the sum of squares, added in order.
func (d *Device) SumSquares(g T) (sum float64, err error) {
	x, err := d.read(g)
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum, err
}

// host returns the values in a Go slice, which may be the buffer's own memory.
func (b *Buffer) host() (any, error) {
	if b.backend.HasSharedBuffers() {
		return b.Data()
	}
	flat := dtypes.MakeAnySlice(b.shape.DType, b.shape.Size())
	return flat, b.ToFlatData(flat)
}

// Backend returns the backend of the device, for the caller's own executions.
func (d *Device) Backend() *Backend { return d.backend }

// Model returns the book of the buffers that GoMLX itself creates. With a single rank it is
// the rank's book.
func (b *Backend) Model() *Device { return b.model }
