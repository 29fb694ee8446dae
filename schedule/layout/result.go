package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory"
)

// layout returns the layout of a whole trace. The allocations of a group share one offset.
func (t *trace) layout(group []int32, offsets []int64, height int64) *memory.Layout {
	places := len(t.births) - 1
	l := &memory.Layout{
		Height: height, Allocations: make([]memory.Allocation, 0, t.births[places]),
		Places: t.births, Levels: make([]memory.Level, 0, places), Segments: t.segments,
	}
	var live int64
	for i, action := range t.actions {
		first := t.place(action.at) == len(l.Levels) // the first action at this place
		level := memory.Level{Peak: live}
		for _, change := range t.changes(i) {
			if change < 0 {
				live -= t.allocations[^change].bytes
				continue
			}
			it := &t.allocations[change]
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
	return l
}

// Peak describes the first moment at which the live bytes of a rank are at their maximum.
type Peak struct {
	Bytes   int64
	Classes memory.ByClass
	Place   int     // in the layout
	Owners  []Owner // at this moment, the largest first
}

// Owner sums up the buffers with one name, for one or more microbatches, that are alive at a peak.
type Owner struct {
	Name  string
	Class memory.Class
	Count int
	Bytes int64 // total size of these buffers
	// First and Last are the lowest and highest of their microbatches, or -1 if there are none.
	First, Last int
}

// peak returns the peak of a whole trace.
func (t *trace) peak() Peak {
	last := t.peaks().change
	peak := Peak{Bytes: t.peaks().bytes}
	for _, action := range t.actions {
		if int(action.start) <= last {
			peak.Place = t.place(action.at)
		}
	}
	type key struct {
		kind         originKind
		stage, index int32
		class        memory.Class
	}
	owners := map[key]*Owner{}
	for i := range t.allocations {
		it := &t.allocations[i]
		if int(it.birth) > last || int(it.death) <= last {
			continue
		}
		peak.Classes[it.class] += it.bytes
		o := it.origin
		k := key{o.kind, o.stage, o.index, it.class}
		owner, m := owners[k], int(o.microbatch)
		if owner == nil {
			owner = &Owner{Name: t.profile.name(o, t.shape(m)), Class: it.class, First: m, Last: m}
			owners[k] = owner
		}
		owner.Count++
		owner.Bytes += it.bytes
		owner.First, owner.Last = min(owner.First, m), max(owner.Last, m)
	}
	for _, owner := range owners {
		peak.Owners = append(peak.Owners, *owner)
	}
	slices.SortFunc(peak.Owners, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Class, b.Class), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	return peak
}
