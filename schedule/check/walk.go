package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// rankWalk visits the programs of ranks, one after the other. The checks that visit actions embed it.
type rankWalk struct {
	passes.Walk
	c    *Checker
	rank int
}

// run visits the program of a rank. If the program is too large, run adds a fault and returns false.
func (w *rankWalk) run(rank int, visit func(a schedule.Action, mb int64)) bool {
	w.rank = rank
	w.Program(w.c.Plan.Programs[rank], visit)
	w.c.visited = max(w.c.visited, w.Visited)
	return !w.c.Unproved(&w.Walk, rank)
}

// here returns the location of the visited action.
func (w *rankWalk) here(a schedule.Action, mb int64) location {
	return location{w.rank, w.Segment, w.Index, w.Position, a, mb}
}

// fault adds a fault for the visited action. about distinguishes faults with the same code.
func (w *rankWalk) fault(a schedule.Action, mb int64, code Code, about, format string, args ...any) {
	w.c.fault(w.here(a, mb), code, about, format, args...)
}
