package kernels

import "github.com/weir-ml/weir/memory"

// Buffers manages the memory of a device whose bytes the processor cannot access, for the device
// to embed. Buffers, books, scopes and layouts work as in [Host], in an arena over the device's
// range ([memory.Range]).
type Buffers struct{ space }

// NewBuffers returns Buffers over an arena, and takes ownership of the arena.
func NewBuffers(arena *memory.Arena) *Buffers {
	return &Buffers{space{arena: arena}}
}

// Extent returns the location of a buffer: the offset of its first byte from the start of the
// range, and its size in bytes. Like Lend, it may be called from any goroutine.
func (b *Buffers) Extent(buf Buffer) (off, bytes int64, err error) {
	b.table.Lock()
	off, bytes, err = b.arena.Extent(buf.Handle)
	b.table.Unlock()
	if err == nil && buf.first > 0 {
		at, err := buf.span(bytes)
		return off + at, int64(buf.N) * buf.Type.Bytes(), err
	}
	return off, bytes, err
}

// Checks returns operations that compute nothing: they reject the calls that [Host] would reject,
// except those with faults in the contents. The device calls them before it computes. The target
// is the device itself, which determines the sizes of workspaces.
func (b *Buffers) Checks(target Compute) Operations {
	return &host{space: space{arena: b.arena}, target: target}
}
