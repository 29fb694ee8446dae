package frames

import "github.com/weir-ml/weir/internal/engine/effects"

// Cell holds one handle. The handle of an empty cell is the zero T, so that the cell keeps nothing
// reachable.
type Cell[T any] struct {
	Handle   T
	State    CellState
	Consumer Consumer
	// Optional is set if the consumer need not take the slot, because a decorator has frozen the
	// stage.
	Optional bool
}

// CellState is the state of a cell.
type CellState uint8

// The states of a cell.
const (
	Empty     CellState = iota
	Full                // holds a handle
	Lent                // holds a handle that the running action has taken
	Leaving             // holds a handle while its contents are copied to far memory
	Returning           // holds a handle while its contents are copied back
	Offloaded           // its contents are in far memory only; the handle has no buffer
	Dropped             // held a handle that was released: a part after its last read, a slot after its action
)

// offloaded reports whether the contents are in far memory or being copied, so that they may not be read.
func (c *Cell[T]) offloaded() bool { return c.State >= Leaving && c.State <= Offloaded }

// Held reports whether the cell holds a handle.
func (c *Cell[T]) Held() bool { return c.State >= Full && c.State <= Returning }

// End empties the cell after its handle was released or handed over.
func (c *Cell[T]) End() { *c = Cell[T]{State: Dropped} }

// anyHeld reports whether any of the cells holds a handle.
func anyHeld[T any](cells []Cell[T]) bool {
	for i := range cells {
		if cells[i].Held() {
			return true
		}
	}
	return false
}

// passing is the place of a handle that a decorator passes from one child to another.
const passing effects.BufferKind = effects.NumBufferKinds
