package cuda

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/memory"
)

// Config is the configuration of a [Device]. The zero value is useful.
type Config struct {
	// Capacity is the address space for buffers in bytes, rounded up to pages. 0 means the size
	// of the device's memory. Untouched pages cost nothing.
	Capacity int64
	// Modules lists the texts of PTX modules whose kernels the device loads in addition to its
	// own.
	Modules []string
	// Products selects the arithmetic of MatMul, HeadLoss and HeadLossBackward.
	Products Products
	// Library, if set, computes the matrix products instead of the device's kernels, except for
	// the gradient of the head's table, which skips tokens. The device owns the library, and
	// closes it before the driver. The bits are then the library's: an element may depend on more
	// than its row and its column.
	Library driver.Library
	// Plain queues every kernel separately instead of as part of a graph. Setting Library has
	// the same effect.
	Plain bool
}

// Products selects how float32 matrices are multiplied.
type Products uint8

const (
	// Float32 computes each element as one chain of fused multiply-adds, in ascending order of k.
	Float32 Products = iota
	// BFloat16 rounds both operands to bfloat16, to nearest, and multiplies on tensor cores.
	// Products are exact. Sums are in float32, in steps of 16 products whose inner order the
	// hardware determines. An element depends on its row and its column alone, so no plan changes
	// a bit, but another GPU generation may.
	BFloat16
)

// Device is a GPU.
type Device struct {
	*kernels.Buffers
	driver    driver.Driver
	checks    kernels.Operations
	pages     *pages
	modules   []driver.Module
	functions map[string]driver.Function
	products  Products
	library   driver.Library // nil if there is none
	plain     bool
	chunk     []byte // a piece of the buffer that is being received
	ids       []ids  // summaries of the live Int32 buffers that the host has written

	peers            map[*Device]bool // whether the driver reported each device as reachable
	compute, in, out driver.Stream
	scratch          driver.Addr

	leaving, returning driver.Stream // copies to and from far memory; 0 before NewFarMemory

	reading sync.Mutex   // guards staging.read, for copies from the device; locked before mu
	mu      sync.Mutex   // guards the fields below
	before  driver.Event // the event that a copy waits for
	arrival driver.Event // the event of the last copy queued from another device
	staging staging
	pending []pending
	graphs  graphs
	closed  bool
}

// pending is a buffer to which a copy is in flight that no kernel has waited for yet.
type pending struct {
	handle memory.Handle
	event  driver.Event
}

var (
	_ kernels.Compute  = (*Device)(nil)
	_ kernels.Shadowed = (*Device)(nil)
	_ memory.Planned   = (*Device)(nil)
	_ memory.Scoped    = (*Device)(nil)

	_ kernels.LossCells = (*Device)(nil)
	_ kernels.HeadLimit = (*Device)(nil)
)

// Open returns the device that a driver controls. It takes ownership of the driver, and closes it
// on failure. The error wraps driver.ErrRefused, with the driver's log, if a kernel cannot be
// loaded, and memory.ErrOutOfMemory if there is not enough room for the range.
func Open(d driver.Driver, cfg Config) (*Device, error) {
	dev := &Device{
		driver: d, products: cfg.Products, library: cfg.Library, plain: cfg.Plain || cfg.Library != nil,
		functions: map[string]driver.Function{}, peers: map[*Device]bool{}, chunk: make([]byte, stagingBytes),
	}
	if err := dev.open(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: open: %w", err), dev.Close())
	}
	return dev, nil
}

func (d *Device) open(cfg Config) (err error) {
	for _, s := range []*driver.Stream{&d.compute, &d.in, &d.out} {
		if *s, err = d.driver.NewStream(); err != nil {
			return err
		}
	}
	d.graphs.known = map[uint64]*recording{}
	for _, e := range []*driver.Event{&d.before, &d.arrival} {
		if *e, err = d.driver.NewEvent(); err != nil {
			return err
		}
	}
	if err = d.staging.open(d.driver); err != nil {
		return err
	}
	for _, text := range cfg.Modules {
		if err = d.load(text); err != nil {
			return err
		}
	}
	facts := d.driver.Properties()
	if cfg.Capacity == 0 {
		cfg.Capacity = facts.Total
	}
	d.pages = &pages{device: d, page: facts.Page}
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: cfg.Capacity, Align: align, Range: d.pages})
	if err != nil {
		return err
	}
	d.Buffers = kernels.NewBuffers(arena)
	return d.openOperations()
}

// align is the alignment of every buffer in bytes. Kernels load 16 bytes at once; the driver
// aligns its own allocations in the same way.
const align = 256

var entry = regexp.MustCompile(`(?m)^\s*\.(?:visible|weak)\s+\.entry\s+([\w$]+)`)

// load loads the kernels of a PTX module.
func (d *Device) load(text string) error {
	m, err := d.driver.Load(text)
	if err != nil {
		return err
	}
	d.modules = append(d.modules, m)
	for _, name := range entry.FindAllStringSubmatch(text, -1) {
		if d.functions[name[1]], err = d.driver.Function(m, name[1]); err != nil {
			return err
		}
	}
	return nil
}

// Name returns "cuda: " and the name of the GPU.
func (d *Device) Name() string { return "cuda: " + d.driver.Properties().Name }

// ShadowConfig returns the configuration of an arena like the device's, but without memory.
func (d *Device) ShadowConfig() memory.ArenaConfig {
	return memory.ArenaConfig{Capacity: d.pages.size, Align: align, Range: memory.UnbackedRange(d.pages.page)}
}

// launch queues the named kernel, with one word for each parameter.
func (d *Device) launch(name string, grid, block [3]uint32, args ...uint64) error {
	f, ok := d.functions[name]
	if !ok {
		return fmt.Errorf("cuda: no kernel is named %s", name)
	}
	varies, ok := varying[name]
	if !ok {
		varies = -1
	}
	return d.queue(piece{function: f, grid: grid, block: block, varies: varies}, args...)
}

// at returns the address of a buffer for the next kernel, and ensures that this kernel runs after
// any copy in flight to the buffer. It returns 0 for the zero Buffer. The buffer must be live.
func (d *Device) at(b kernels.Buffer) (driver.Addr, error) {
	if b == (kernels.Buffer{}) {
		return 0, nil
	}
	off, _, err := d.Extent(b)
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pages.base + driver.Addr(off), d.arrived(b.Handle)
}

// arrived makes subsequent kernels wait for a copy to a buffer.
func (d *Device) arrived(h memory.Handle) error {
	for i, p := range d.pending {
		if p.handle == h {
			d.pending[i] = d.pending[len(d.pending)-1]
			d.pending = d.pending[:len(d.pending)-1]
			return d.driver.Wait(d.compute, p.event)
		}
	}
	return nil
}

// Release releases a plain reference. Kernels wait for a copy in flight to the buffer before
// another buffer can take its place.
func (d *Device) Release(b kernels.Buffer) (freed int64, err error) {
	if freed, err = d.Buffers.Release(b); freed > 0 {
		err = errors.Join(err, d.awaitCopies(b))
	}
	return freed, err
}

// UnholdAndRelease combines Unhold and Release.
func (d *Device) UnholdAndRelease(b kernels.Buffer) (unheld, freed int64, class memory.Class, err error) {
	if unheld, freed, class, err = d.Buffers.UnholdAndRelease(b); freed > 0 {
		err = errors.Join(err, d.awaitCopies(b))
	}
	return unheld, freed, class, err
}

// awaitCopies makes kernels wait for a copy in flight to a freed buffer, and forgets the ids in the
// buffer.
func (d *Device) awaitCopies(b kernels.Buffer) error {
	d.forget(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.arrived(b.Handle)
}

// Reclaim waits for all queued work, which may use the buffers, and frees the buffers allocated
// since mark that are not Lasting.
func (d *Device) Reclaim(mark uint64) int64 {
	d.ids = d.ids[:0]
	_ = d.Sync() // a lost device no longer uses any buffer; the next call returns the error
	return d.Buffers.Reclaim(mark)
}

// Sync waits for all queued work to finish, and returns the errors that occurred since the last
// Sync.
func (d *Device) Sync() error {
	if d.closed {
		return fmt.Errorf("cuda: %w: Sync", memory.ErrClosed)
	}
	err := d.flush()
	d.mu.Lock()
	d.graphs.failed = nil
	d.mu.Unlock()
	err = joined(err, d.driver.Sync(d.in))
	d.mu.Lock()
	d.pending = d.pending[:0] // not earlier, because an Encode on another goroutine had to wait for them until now
	d.mu.Unlock()
	err = joined(err, d.driver.Sync(d.compute), d.driver.Sync(d.out))
	if d.leaving != 0 && d.returning != 0 {
		err = joined(err, d.driver.Sync(d.leaving), d.driver.Sync(d.returning))
	}
	return err
}

// flush queues the deferred pieces.
func (d *Device) flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flushLocked()
}

// joined joins errors. It keeps only the first error that reports a lost device, because every
// later call reports it too.
func joined(errs ...error) (err error) {
	for _, e := range errs {
		if !errors.Is(err, driver.ErrLost) || !errors.Is(e, driver.ErrLost) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Close waits for queued work and releases all resources, including the driver. It makes every
// handle stale. A second Close does nothing.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	var err error
	if d.Buffers != nil {
		err = joined(d.Sync(), d.Buffers.Close())
	}
	d.closed = true
	if d.library != nil {
		err = joined(err, d.library.Close())
	}
	err = joined(err, d.forgetGraphs(), d.staging.close(d.driver), d.closeOperations())
	for _, m := range d.modules {
		err = joined(err, d.driver.Unload(m))
	}
	for _, e := range []driver.Event{d.before, d.arrival} {
		if e != 0 {
			err = joined(err, d.driver.FreeEvent(e))
		}
	}
	for _, s := range []driver.Stream{d.compute, d.in, d.out, d.leaving, d.returning} {
		if s != 0 {
			err = joined(err, d.driver.FreeStream(s))
		}
	}
	return joined(err, d.driver.Close())
}
