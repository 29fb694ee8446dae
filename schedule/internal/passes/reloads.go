package passes

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Reloads returns, for each stage of a rank, the microbatches whose saved state is reloaded from far
// memory. It returns nil for a plan without offloads, and false if the program is too large and
// irregular.
func (o *Outline) Reloads(rank int) ([]repeats.Runs, bool) {
	if !o.Offloads {
		return nil, true
	}
	v := &reloads{Walk: NewWalk(o, len(o.On[rank])), place: o.Place}
	v.Program(o.Plan.Programs[rank], false, v)
	return v.Upto(len(o.On[rank])), !v.Exhausted
}

// reloads is the visitor that collects reloaded microbatches.
type reloads struct {
	Walk
	place []int // by stage: its set
}

func (v *reloads) Repeats(*schedule.Segment, int64) {}

func (v *reloads) Visit(a schedule.Action, mb int64) {
	if a.Kind() == schedule.Reload {
		v.Add(v.place[a.Stage()], mb)
	}
}
