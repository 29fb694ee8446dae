package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory"
)

// Peak describes the first moment at which the live bytes of a rank are at their maximum.
type Peak struct {
	Bytes   int64
	Classes memory.ByClass
	Place   int     // in the layout
	Owners  []Owner // at this moment, the largest first
}

// Owner is the sum of the buffers with one name, of one or more microbatches, that are alive at a peak.
type Owner struct {
	Name  string
	Class memory.Class
	Count int
	Bytes int64 // of all of them
	// First and Last are the lowest and the highest of their microbatches, -1 for none.
	First, Last int
}

// peak returns the peak of a played program.
func (p *player) peak(segments []SegmentPlaces, end int) Peak {
	var peak Peak
	var live int64
	last := 0 // the change that reaches the peak
	for i, change := range p.log {
		if change < 0 {
			live -= p.allocations[^change].bytes
		} else if live += p.allocations[change].bytes; live > peak.Bytes {
			peak.Bytes, last = live, i
		}
	}
	for _, v := range p.visits {
		if int(v.start) <= last {
			peak.Place = place(segments, end, v.at)
		}
	}
	type key struct {
		kind         originKind
		stage, index int32
		class        memory.Class
	}
	owners := map[key]*Owner{}
	for i := range p.allocations {
		it := &p.allocations[i]
		if int(it.birth) > last || int(it.death) <= last {
			continue
		}
		peak.Classes[it.class] += it.bytes
		o := it.origin
		k := key{o.kind, o.stage, o.index, it.class}
		owner, m := owners[k], int(o.microbatch)
		if owner == nil {
			owner = &Owner{Name: p.profile.name(o, p.shape(m)), Class: it.class, First: m, Last: m}
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
