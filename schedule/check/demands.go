package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// demands holds each action's dependencies on actions of the same rank, indexed by Outline.Set of the
// dependent action's stage and kind.
type demands struct {
	outline *passes.Outline
	list    []demand
	from    []int32 // the demands of set i are list[from[i]:from[i+1]]
}

// demand is a dependency that either of two actions can meet. set and or are the indices of their sets,
// which are equal if only one action can meet the dependency.
type demand struct {
	passes.Need
	set, or int32
	span    int32 // the index of the set with the microbatches of the stage's copy of the model
}

// newDemands returns the demands for a walk, whose sets with the microbatches of each copy of the model (see
// putSpans) must begin at index spans.
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
			d.list = append(d.list, demand{n, first, other, int32(spans + o.Sites[n.Stage].Copy)})
		}
		d.from = append(d.from, int32(len(d.list)))
	}
	return d
}

// met reports whether all dependencies of an action of a set are met. The sets hold the actions that are done.
func (d *demands) met(sets *repeats.Sets, set int, mb int64) bool {
	met := true
	for i := d.from[set]; i < d.from[set+1]; i++ {
		need, needed := &d.list[i], mb
		if need.On != 0 {
			var planned bool
			if needed, planned = d.neighbour(sets, need, mb); !planned {
				continue
			}
		}
		if !sets.Has(int(need.set), needed) && (need.or == need.set || !sets.Has(int(need.or), needed)) {
			met = false
		}
	}
	return met
}

// neighbour returns the neighboring slice of a sequence on which slice mb depends, and whether the
// plan contains it.
func (d *demands) neighbour(sets *repeats.Sets, need *demand, mb int64) (needed int64, planned bool) {
	needed, planned = d.outline.Neighbour(mb, need.On)
	return needed, planned && sets.Has(int(need.span), needed)
}
