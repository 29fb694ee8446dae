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
	Place      int   // place of the change in the layout
	Offset     int64 // in the layout
	Stage      int   // the owner; -1 for an entry
	Buffer     int   // index into the buffers of the owner's profile, or the port of a transfer
	Microbatch int   // -1 if it belongs to none

	origin origin
}

// Name returns the name of a change's buffer, without its microbatch.
func (p *Memory) Name(c Change) string { return p.profile.name(c.origin, p.shape(c.Microbatch)) }

// All iterates over the changes of a whole step on a rank, including every repeat, in the order in
// which a runner makes them with stages of this profile. It traces the program again, and its memory use
// grows with the number of changes.
func (p *Memory) All(rank int) iter.Seq[Change] { return p.changes(rank, 1) }

// AtMost is like All, but if a step has more than most changes, it may leave out repeats that equal the previous ones.
// About most changes then remain, and complete is false.
func (p *Memory) AtMost(rank int, most int64) (changes iter.Seq[Change], complete bool) {
	t := p.newTrace(rank, false)
	t.skips = p.cfg.Shapes == nil
	_ = t.run() // It succeeded in Make, which traced the same program.
	if total := 2 * t.total; total > most && int64(len(t.log)) < total {
		return p.changes(rank, float64(most)/float64(total)), false
	}
	return p.All(rank), true
}

// changes iterates over the changes of a rank, with a share of the equal repeats.
func (p *Memory) changes(rank int, share float64) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		layout := p.Ranks[rank].Layout
		t := p.newTrace(rank, false)
		t.limit, t.skips, t.kept = 1<<31-1, share < 1, share
		_ = t.run() // It succeeded in Make, which traced the same program.
		t.segments = layout.Segments
		offsets := make([]int64, len(t.allocations))
		for i, action := range t.actions {
			place := t.place(action.at)
			births := layout.Allocations[layout.Places[place]:layout.Places[place+1]]
			for _, change := range t.changes(i) {
				serial := max(change, ^change)
				it := &t.allocations[serial]
				if change >= 0 {
					offsets[serial] = -1
					if int(it.ordinal) < len(births) {
						offsets[serial] = births[it.ordinal].Offset
					}
				}
				c := Change{
					Alloc: change >= 0, Serial: int(serial), Bytes: it.bytes, Class: it.class,
					Place: place, Offset: offsets[serial], Stage: int(it.origin.stage), Buffer: int(it.origin.index), Microbatch: int(it.origin.microbatch), origin: it.origin,
				}
				if it.origin.kind == ofEntry {
					c.Stage = -1
				}
				if !yield(c) {
					return
				}
			}
		}
	}
}
