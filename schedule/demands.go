package schedule

// demands are what actions need of their own rank, by the set of their stage and kind.
type demands struct {
	outline *outline
	list    []demand
	from    []int32 // by set: the first of its demands; the last one ends where the next set's begin
}

// demand is one of two actions: the index of the set of those that are done, or, where
// there is no other one, the same twice.
type demand struct {
	set, or int32
	span    run  // of the stage, where on is not 0
	on      int8 // as in need
}

func newDemands(o *outline) demands {
	sets := o.stages * kindsPerStage
	d := demands{outline: o, list: make([]demand, 0, sets), from: make([]int32, 1, sets+1)}
	var room [3]need
	for set := range sets {
		for _, n := range o.needs(room[:0], set/kindsPerStage, Kind(set%kindsPerStage)) {
			if n.remote {
				continue
			}
			first := int32(o.set(n.stage, n.kind))
			other := first
			if n.or != None {
				other = int32(o.set(n.stage, n.or))
			}
			d.list = append(d.list, demand{first, other, o.span(n.stage), n.on})
		}
		d.from = append(d.from, int32(len(d.list)))
	}
	return d
}

// met reports whether a walk, whose sets are what is done, has done all that an action
// needs.
func (d *demands) met(w *walk, set int, mb int64) bool {
	met := true
	for i := d.from[set]; i < d.from[set+1]; i++ {
		need, of := &d.list[i], mb
		if need.on != 0 {
			var sliced bool
			if of, sliced = d.outline.neighbour(mb, need.on); !w.within(of, need.span) || !sliced {
				continue
			}
		}
		if !w.has(int(need.set), of) && (need.or == need.set || !w.has(int(need.or), of)) {
			met = false
		}
	}
	return met
}
