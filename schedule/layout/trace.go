package layout

import (
	"iter"

	"github.com/weir-ml/weir/memory"
)

// Change is an allocation or a release of a buffer in the program of a rank.
type Change struct {
	Alloc      bool
	Serial     int // number of buffers that were allocated before this one
	Bytes      int64
	Class      memory.Class
	Place      int   // place in the layout of the change
	Offset     int64 // in the layout
	Stage      int   // the owner; -1 for an entry
	Microbatch int   // -1 if it belongs to none

	origin origin
}

// Name returns the name of the buffer of a change, without its microbatch.
func (p *Memory) Name(c Change) string {
	shape := 0
	if p.cfg.Shapes != nil && c.Microbatch >= 0 {
		shape = p.cfg.Shapes[c.Microbatch]
	}
	return p.profile.name(c.origin, shape)
}

// All iterates over the changes of a whole step on a rank, including every repeat, in the order in
// which a runner makes them with stages of this profile. It plays the program again, and uses memory
// for every allocation of the step.
func (p *Memory) All(rank int) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		r := &p.Ranks[rank]
		played := newPlayer(p.plan, p.profile, newPorts(p.plan, p.profile), rank, false, &p.cfg)
		played.limit = 1<<31 - 1
		var offsets []int64
		stopped := false
		played.emit = func(change int32) {
			if stopped {
				return
			}
			at := place(r.Segments, r.End, played.at)
			serial := change
			if change < 0 {
				serial = ^change
			}
			it := &played.allocations[serial]
			if change >= 0 {
				offset := int64(-1)
				if births := r.Layout.Allocations[r.Layout.Places[at]:r.Layout.Places[at+1]]; int(it.ordinal) < len(births) {
					offset = births[it.ordinal].Offset
				}
				offsets = append(offsets, offset)
			}
			c := Change{
				Alloc: change >= 0, Serial: int(serial), Bytes: it.bytes, Class: it.class,
				Place: at, Offset: offsets[serial], Stage: int(it.origin.stage), Microbatch: int(it.origin.microbatch), origin: it.origin,
			}
			if it.origin.kind == ofEntry {
				c.Stage = -1
			}
			if stopped = !yield(c); stopped {
				played.limit = 0 // ends the play at the next birth
			}
		}
		_ = played.play() // It succeeded in Make, which played the same program.
	}
}
