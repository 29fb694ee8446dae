package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// demands are the needs of actions on their own rank, by the set of their stage and kind.
type demands struct {
	outline *passes.Outline
	list    []demand
	from    []int32 // by set: the first of its demands; the last one ends where the next set's begin
}

// demand is met by either of two actions. It has the indices of their sets, or the same one twice
// if there is no other.
type demand struct {
	set, or int32
	span    int32 // the set of the plan's microbatches
	on      int8  // as in passes.Need
}

// newDemands returns the demands for a walk whose sets of the plan's microbatches begin with this
// one.
func newDemands(o *passes.Outline, spans int) demands {
	sets := o.Stages * passes.KindsPerStage
	d := demands{outline: o, list: make([]demand, 0, sets), from: make([]int32, 1, sets+1)}
	var room [3]passes.Need
	for set := range sets {
		for _, n := range o.Needs(room[:0], set/passes.KindsPerStage, schedule.Kind(set%passes.KindsPerStage)) {
			if n.Remote {
				continue
			}
			first := int32(o.Set(n.Stage, n.Kind))
			other := first
			if n.Or != schedule.None {
				other = int32(o.Set(n.Stage, n.Or))
			}
			d.list = append(d.list, demand{first, other, int32(spans + o.Sites[n.Stage].Copy), n.On})
		}
		d.from = append(d.from, int32(len(d.list)))
	}
	return d
}

// met reports whether a walk, whose sets hold the actions that are done, has done everything that
// an action needs.
func (d *demands) met(w *passes.Walk, set int, mb int64) bool {
	met := true
	for i := d.from[set]; i < d.from[set+1]; i++ {
		need, of := &d.list[i], mb
		if need.on != 0 {
			var sliced bool
			if of, sliced = d.outline.Neighbour(mb, need.on); !sliced || !w.Has(int(need.span), of) {
				continue
			}
		}
		if !w.Has(int(need.set), of) && (need.or == need.set || !w.Has(int(need.or), of)) {
			met = false
		}
	}
	return met
}
