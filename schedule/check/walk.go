package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// rankWalk visits the programs of ranks, one after the other. The visitors of the checks embed it and add their
// results.
type rankWalk struct {
	c    *Checker
	rank int
	walk passes.Walk
	sets *repeats.Sets // of the walk
}

// walk returns a rankWalk with the given number of sets, all empty.
func (c *Checker) walk(sets int) rankWalk {
	walk := passes.NewWalk(&c.Outline, sets)
	return rankWalk{c: c, walk: walk, sets: walk.Sets}
}

// run visits the program of a rank. If the program is too large, run adds a fault and returns false.
func (w *rankWalk) run(rank int, visit func(a schedule.Action, mb int64)) bool {
	w.rank = rank
	w.walk.Program(w.c.Plan.Programs[rank], visit)
	w.c.visited = max(w.c.visited, w.walk.Visited)
	return !w.c.Unproved(w.sets, rank)
}

// here returns the location of the visited action.
func (w *rankWalk) here(a schedule.Action, mb int64) location {
	return location{w.rank, w.walk.Segment, w.walk.Index, w.walk.Position, a, mb}
}

// fault adds a fault for the visited action. about distinguishes faults with the same code.
func (w *rankWalk) fault(a schedule.Action, mb int64, code Code, about, format string, args ...any) {
	w.c.fault(w.here(a, mb), code, about, format, args...)
}
