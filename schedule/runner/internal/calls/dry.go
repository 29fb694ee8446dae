package calls

import (
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
)

// Dry holds the parts of a runner that a dry run needs.
type Dry[T any] struct {
	Ranks     []*Caller[T]
	StageInfo []schedule.StageInfo               // by stage
	Copy      func(from, to int, h T) (T, error) // nil if all ranks share one space
	// SetSource sets the source of every rank.
	SetSource func(source Source[T]) error
	// Whole allocates the buffers for a stage's whole parameters, either gathered weights or whole
	// gradients, and hands them over to the frames. It is nil if nothing is sharded.
	Whole func(s int, place effects.BufferKind) error
}
