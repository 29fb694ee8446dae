package kernels

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/memory"
)

// HostConfig is the configuration of a [Host]: its size, threads and instructions. The zero
// value is useful: one thread, and the best instructions of the processor.
type HostConfig struct {
	// Capacity is the address space for buffers in bytes; untouched pages cost nothing. 0
	// selects the default of [memory.ArenaConfig].
	Capacity int64
	// Pages supplies and discards pages; see [memory.ArenaConfig]. The default is memory.System{}.
	Pages memory.Pager
	// Threads is the number of threads that compute an operation: the caller's thread plus those
	// of a pool that the device owns. 0 means 1, which starts no goroutine. [Cores] returns the
	// best number for a single device.
	Threads int
	// Pool, if set, is a pool that the device shares with others instead of owning one; Threads
	// must then be 0. The caller closes the pool after the device.
	Pool *Pool
	// Alone declares that no other goroutine ever reads a buffer of the device. Lend then fails,
	// and with it Encode, Decode and any Transfer from the device, but Alloc and Release need no lock.
	Alone bool
	// Instructions is the instruction set. NewHost returns ErrValue if it is not available.
	Instructions Instructions
}

// Validate reports every fault of the configuration.
func (c HostConfig) Validate() error {
	var faults error
	add := func(err error) {
		if err != nil {
			faults = errors.Join(faults, fmt.Errorf("kernels: HostConfig: %w", err))
		}
	}
	add(c.arena().Validate())
	add(c.Instructions.validate())
	if c.Threads != 0 {
		add(validateThreads(c.Threads))
		if c.Pool != nil {
			add(fmt.Errorf("%w: Threads is %d, want 0 because Pool is set and has its own number of threads", ErrValue, c.Threads))
		}
	}
	return faults
}

// arena returns the configuration of the arena. Aligning buffers to a cache line is sufficient,
// because no result depends on the address of a buffer.
func (c HostConfig) arena() memory.ArenaConfig {
	return memory.ArenaConfig{Capacity: c.Capacity, Align: 64, RedZone: 64, Pages: c.Pages}
}

// Host is the processor as a device: buffers in a [memory.Arena], and every operation of
// [Compute] over views of them. An operation is complete when it returns. In steady state it
// starts no goroutine and allocates nothing on the Go heap (L11). In addition to the arena, a
// device has 0.8 MiB of scratch memory for matrix products, and a pool has the same amount for
// each of its other threads, regardless of the shapes.
//
// Results are a function of the arguments and the instruction set alone, to the bit: sums run
// in an order that depends on shapes, never on the number of threads or on addresses. AVX2,
// AVX512 and NEON give the same bits, on amd64 and on arm64. Portable gives different bits,
// because an FMA rounds once, and a multiplication and an addition round twice.
type Host struct {
	host
	config memory.ArenaConfig
	pool   *Pool // owned by the device, or nil
}

// host implements the operations of a [Host], of a [Null] and of [Buffers.Checks]; in the latter two
// they only open their buffers.
type host struct {
	space
	target      Compute    // in a Null or Buffers.Checks: determines the sizes of workspaces; in a Host: nil
	vector      vector.Set // the calling thread's instruction set
	crew        *crew
	product     multiplication
	operations  operations
	softmaxRows [headTokens]softmaxRow // scratch of HeadLoss
	tallies     []float8.Tally         // scratch of Quantize, by worker
}

var (
	_ Addressable    = (*Host)(nil)
	_ Shadowed       = (*Host)(nil)
	_ memory.Planned = (*Host)(nil)
	_ memory.Scoped  = (*Host)(nil)
)

// call starts a call to an operation.
func (h *host) call(op string) call { return call{op: op, arena: h.arena, null: h.target != nil} }

// NewHost reserves the arena, and starts the device's own threads, if any. The caller owns the
// device and must close it.
func NewHost(cfg HostConfig) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	arena, err := memory.NewArena(cfg.arena())
	if err != nil {
		return nil, fmt.Errorf("kernels: host: %w", err)
	}
	h := &Host{config: cfg.arena()}
	h.arena, h.alone = arena, cfg.Alone
	shared := cfg.Pool
	if cfg.Threads > 1 {
		h.pool = newPool(cfg.Threads)
		shared = h.pool
	}
	h.crew = newCrew(shared, cfg.Instructions.resolve())
	h.vector = h.crew.self.vector
	h.product.crew = h.crew
	h.tallies = make([]float8.Tally, h.crew.threads())
	return h, nil
}

// Close stops the threads that the device owns and returns all memory to the system. It makes
// every handle stale.
func (h *Host) Close() error {
	if h.pool != nil {
		h.pool.Close()
	}
	return h.space.Close()
}

// Instructions returns the instruction set of the device.
func (h *Host) Instructions() Instructions { return h.crew.set }

// run computes the parts of an operation on the device's threads.
func (h *host) run(t task, parts int) { h.crew.run(t, parts) }

// Name returns "host", or "host in plain Go" if its Instructions are Portable, whose bits differ from those of
// the other sets.
func (h *Host) Name() string {
	if h.Instructions() == Portable {
		return "host in plain Go"
	}
	return "host"
}

// Sync does nothing, because every operation is complete when it returns.
func (h *Host) Sync() error { return nil }

// ShadowConfig returns the configuration of the device's arena, for a [Null].
func (h *Host) ShadowConfig() memory.ArenaConfig { return h.config }

// Lend returns a view of the bytes of a buffer. It may be called from any goroutine ([Lender]).
func (h *host) Lend(b Buffer) ([]byte, error) {
	if h.alone {
		return nil, fmt.Errorf("%w: Lend: the device was made with HostConfig.Alone", ErrNoLender)
	}
	h.table.Lock()
	data, err := h.data(b)
	h.table.Unlock()
	if err != nil {
		return nil, fmt.Errorf("kernels: Lend: %w", err)
	}
	return data, nil
}

// Floats returns a new buffer of a class with the given elements, owned by the caller.
func (h *Host) Floats(class memory.Class, x ...float32) (Buffer, error) {
	b, err := h.Alloc(class, Float32, len(x))
	if err != nil {
		return Buffer{}, err
	}
	return b, h.WriteFloat32(b, x)
}

// Float32s returns the elements of a float32 buffer, for reading and writing. The view is valid
// while the buffer has a reference. Float32s returns nil for the zero Buffer. If the buffer is
// stale or belongs to another device, Float32s panics with the usual error instead of returning
// nil, because a sum over no elements would hide the fault.
func (h *Host) Float32s(b Buffer) []float32 {
	c := h.call("Float32s")
	x := c.optional("b", b, b.N)
	if c.err != nil {
		panic(c.err)
	}
	return x
}

// WriteFloat32 copies src to the start of dst.
func (h *host) WriteFloat32(dst Buffer, src []float32) error {
	return write(h, "WriteFloat32", dst, src)
}

// WriteInt32 copies src to the start of dst.
func (h *host) WriteInt32(dst Buffer, src []int32) error { return write(h, "WriteInt32", dst, src) }

// WriteUint8 copies src to the start of dst.
func (h *host) WriteUint8(dst Buffer, src []uint8) error { return write(h, "WriteUint8", dst, src) }

func write[E number](h *host, op string, dst Buffer, src []E) error {
	c := h.call(op)
	if x := roomy[E](&c, "dst", dst, len(src)); !c.done() {
		copy(x, src)
	}
	return c.err
}

// ReadFloat32 copies len(dst) elements from the start of src.
func (h *host) ReadFloat32(dst []float32, src Buffer) error { return read(h, "ReadFloat32", dst, src) }

// ReadInt32 copies len(dst) elements from the start of src.
func (h *host) ReadInt32(dst []int32, src Buffer) error { return read(h, "ReadInt32", dst, src) }

// ReadUint8 copies len(dst) elements from the start of src.
func (h *host) ReadUint8(dst []uint8, src Buffer) error { return read(h, "ReadUint8", dst, src) }

func read[E number](h *host, op string, dst []E, src Buffer) error {
	c := h.call(op)
	x := roomy[E](&c, "src", src, len(dst))
	switch {
	case c.err != nil:
	case c.null:
		clear(dst)
	default:
		copy(dst, x)
	}
	return c.err
}
