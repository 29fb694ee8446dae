package frames

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

// role says what a cell was for, so that a reference kept too long is blamed on
// those who had it in hand.
type role uint8

const (
	unknown   role = iota
	input          // of a stage, from the one before
	gradient       // of a stage's output, from the one after
	saved          // by the stage
	passing        // between the children of a decorator
	output         // that nothing reads
	entryPart      // from the source
	sent           // to another rank, until the transfer is complete
	gathered       // weights, until they are resharded
	weights        // copies of them, until nothing reads them any more
)
