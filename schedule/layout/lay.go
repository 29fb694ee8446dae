package layout

import "github.com/weir-ml/weir/memory"

// Entry returns the planned entry of a microbatch if a rank wants these parts, or nil if the profile
// has no such entry.
func (p *Memory) Entry(microbatch int, wanted uint64) *Entry {
	shape := 0
	if p.cfg.Shapes != nil {
		shape = p.cfg.Shapes[microbatch]
	}
	return p.profile.Shapes[shape].entry(wanted)
}

// layout returns the layout of a played program. The allocations of a group share one offset.
func (p *player) layout(segments []SegmentPlaces, end int, group []int32, offsets []int64, height int64) *memory.Layout {
	l := &memory.Layout{
		Height: height, Allocations: make([]memory.Allocation, 0, len(p.allocations)),
		Places: make([]int32, 0, end+2), Levels: make([]memory.Level, 0, end+1),
	}
	var live int64
	for v, visit := range p.visits {
		until := int32(len(p.log))
		if v+1 < len(p.visits) {
			until = p.visits[v+1].start
		}
		first := place(segments, end, visit.at) == len(l.Levels) // the first visit of this place; places are reached in order
		if first {
			l.Places = append(l.Places, int32(len(l.Allocations)))
		}
		level := memory.Level{Peak: live}
		for _, change := range p.log[visit.start:until] {
			if change < 0 {
				live -= p.allocations[^change].bytes
				continue
			}
			it := &p.allocations[change]
			if first {
				l.Allocations = append(l.Allocations, memory.Allocation{Offset: offsets[group[change]], Bytes: it.bytes, Class: it.class, AtMost: it.atMost})
			}
			live += it.bytes
			level.Peak = max(level.Peak, live)
		}
		if level.Live = live; first {
			l.Levels = append(l.Levels, level)
		}
	}
	l.Places = append(l.Places, int32(len(l.Allocations)))
	return l
}
