package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// demands are the dependencies of actions on their own rank, by the set of their stage and kind.
type demands struct {
	outline *passes.Outline
	list    []demand
	needs   []passes.Need // the dependencies of list
	from    []int32       // the demands of set i are list[from[i]:from[i+1]]
}

// demand is a dependency that either of two actions meets. It holds the indices of their sets,
// which are equal if only one action meets it.
type demand struct {
	set, or int32
	span    int32 // the set of the plan's microbatches
	on      int8  // as in passes.Need
}

// newDemands returns the demands for a walk. The walk's sets of the microbatches of each copy begin
// at index spans.
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
			d.list, d.needs = append(d.list, demand{first, other, int32(spans + o.Sites[n.Stage].Copy), n.On}), append(d.needs, n)
		}
		d.from = append(d.from, int32(len(d.list)))
	}
	return d
}

// met reports whether all dependencies of an action are met. The sets of the walk hold the actions
// that are done.
func (d *demands) met(w *passes.Walk, set int, mb int64) bool {
	met := true
	for i := d.from[set]; i < d.from[set+1]; i++ {
		need, of := &d.list[i], mb
		if need.on != 0 {
			var planned bool
			if of, planned = d.neighbour(w, need, mb); !planned {
				continue
			}
		}
		if !w.Has(int(need.set), of) && (need.or == need.set || !w.Has(int(need.or), of)) {
			met = false
		}
	}
	return met
}

// neighbour returns the slice on which a slice depends, and whether the plan has it in the same
// sequence.
func (d *demands) neighbour(w *passes.Walk, need *demand, mb int64) (of int64, planned bool) {
	of, planned = d.outline.Neighbour(mb, need.on)
	return of, planned && w.Has(int(need.span), of)
}
