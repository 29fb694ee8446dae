package frames

import "github.com/weir-ml/weir/internal/effects"

// cell is a place for one held handle. An empty cell has the zero T, so that it
// keeps nothing reachable.
type cell[T any] struct {
	handle T
	state  cellState
	taker  Taker
	// optional: the taker may leave it, since it was made frozen by a decorator.
	optional bool
}

type cellState uint8

const (
	empty   cellState = iota
	full              // holds a handle
	lent              // holds a handle that the running action took
	dropped           // held one that ended: a part after its last read, a slot after its action
)

// held reports whether the cell holds a handle.
func (c *cell[T]) held() bool { return c.state == full || c.state == lent }

// end empties the cell of what ended.
func (c *cell[T]) end() { *c = cell[T]{state: dropped} }

// anyHeld reports whether one of the cells holds a handle.
func anyHeld[T any](cells []cell[T]) bool {
	for i := range cells {
		if cells[i].held() {
			return true
		}
	}
	return false
}

// passing is the place of what goes from one child of a decorator to another.
const passing effects.Place = effects.NumPlaces
