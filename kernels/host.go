package kernels

import (
	"fmt"

	"github.com/weir-ml/weir/internal/vector"
	"github.com/weir-ml/weir/memory"
)

// HostConfig says how large a [Host] is. The zero value is useful.
type HostConfig struct {
	// Capacity is the address space for buffers in bytes; untouched pages cost
	// nothing. 0 is the default of [memory.ArenaConfig].
	Capacity int64
}

// Validate reports every fault of the configuration.
func (c HostConfig) Validate() error {
	if err := c.arena().Validate(); err != nil {
		return fmt.Errorf("kernels: HostConfig: %w", err)
	}
	return nil
}

// arena returns the configuration of the arena. A cache line is enough of an
// alignment: no result depends on where a buffer lies.
func (c HostConfig) arena() memory.ArenaConfig {
	return memory.ArenaConfig{Capacity: c.Capacity, Align: 64}
}

// Host is the processor as a device: buffers in a [memory.Arena], every
// operation of [Compute] in plain Go over views of them, matrix products in
// gonum. An operation is done when it returns. It starts no goroutine and, in
// steady state, allocates nothing on the Go heap (L11).
//
// Results are a function of the arguments alone, to the bit: sums run in an
// order that depends on shapes, never on a number of threads or on addresses.
// On processors where Go fuses a product and a sum into one rounding (arm64)
// the bits are others than on amd64.
type Host struct {
	space
	config  memory.ArenaConfig
	product product
	vector  vector.Set
}

var (
	_ Compute  = (*Host)(nil)
	_ Shadowed = (*Host)(nil)
)

// NewHost reserves the arena. The caller owns the device and ends it with Close.
func NewHost(cfg HostConfig) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	arena, err := memory.NewArena(cfg.arena())
	if err != nil {
		return nil, fmt.Errorf("kernels: host: %w", err)
	}
	return &Host{space: space{arena: arena}, config: cfg.arena(), product: newProduct(), vector: vectorSet()}, nil
}

// Name returns "host".
func (h *Host) Name() string { return "host" }

// Sync does nothing: every operation is done when it returns.
func (h *Host) Sync() error { return nil }

// ShadowConfig returns the configuration of the arena, for [Null].
func (h *Host) ShadowConfig() memory.ArenaConfig { return h.config }

// WriteFloat32 copies src to the start of dst.
func (h *Host) WriteFloat32(dst Buffer, src []float32) error {
	c := h.call("WriteFloat32")
	x := c.roomy("dst", dst, len(src))
	copy(x, src)
	return c.err
}

// WriteInt32 copies src to the start of dst.
func (h *Host) WriteInt32(dst Buffer, src []int32) error {
	c := h.call("WriteInt32")
	x := c.roomyInts("dst", dst, len(src))
	copy(x, src)
	return c.err
}

// ReadFloat32 copies len(dst) elements from the start of src.
func (h *Host) ReadFloat32(dst []float32, src Buffer) error {
	c := h.call("ReadFloat32")
	copy(dst, c.roomy("src", src, len(dst)))
	return c.err
}

// ReadInt32 copies len(dst) elements from the start of src.
func (h *Host) ReadInt32(dst []int32, src Buffer) error {
	c := h.call("ReadInt32")
	copy(dst, c.roomyInts("src", src, len(dst)))
	return c.err
}
