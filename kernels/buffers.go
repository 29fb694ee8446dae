package kernels

import "github.com/weir-ml/weir/memory"

// Buffers is the memory of a device whose bytes the processor cannot read, for that device to
// embed: buffers, books, scopes and layouts as those of [Host], in an arena over the device's
// range ([memory.Range]).
type Buffers struct{ space }

// NewBuffers returns the buffers of an arena, which they own from then on.
func NewBuffers(arena *memory.Arena) *Buffers {
	return &Buffers{space{arena: arena}}
}

// Extent returns where a buffer lies: the offset of its first byte from the start of the
// range, and its size in bytes. Like Lend it may be called from any goroutine.
func (b *Buffers) Extent(buf Buffer) (off, bytes int64, err error) {
	b.table.Lock()
	defer b.table.Unlock()
	return b.arena.Extent(buf.Handle)
}

// Checks returns operations that compute nothing: they refuse the calls that [Host] would
// refuse, but for what depends on contents. The device asks them before it computes.
// Workspaces are those of the target, which is the device.
func (b *Buffers) Checks(target Compute) Operations {
	return &host{space: space{arena: b.arena}, target: target}
}
