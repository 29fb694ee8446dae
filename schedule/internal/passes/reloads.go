package passes

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Reloads returns, for each stage of a rank, the microbatches whose saved state is reloaded from far
// memory, or nil for a plan without offloads. The second result is false if the program is too large and
// irregular.
func (o *Outline) Reloads(rank int) ([]repeats.Runs, bool) {
	if !o.Offloads {
		return nil, true
	}
	w := NewWalk(o, len(o.On[rank]))
	w.Program(o.Plan.Programs[rank], func(a schedule.Action, mb int64) {
		if a.Kind() == schedule.Reload {
			w.Sets.Add(o.Place[a.Stage()], mb)
		}
	})
	return w.Sets.Upto(len(o.On[rank])), !w.Sets.Exhausted
}
