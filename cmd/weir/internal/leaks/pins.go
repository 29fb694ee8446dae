package leaks

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory/snapshot"
)

// Pins describes mostly free segments, and the blocks that keep them reserved. In an expandable segment,
// every page counts individually.
type Pins struct {
	Segments int   `json:"segments"`
	Reserved int64 `json:"reserved"` // bytes of the segments
	Blocks   int   `json:"blocks"`   // blocks that keep them
	Live     int64 `json:"live"`     // bytes of these blocks
	Sites    []Pin `json:"per_site"` // sites that allocated the blocks, the most reserved bytes first
}

// Pin describes the blocks of one site that keep segments reserved.
type Pin struct {
	Site     Site  `json:"site"`
	Blocks   int   `json:"blocks"`
	Live     int64 `json:"live"`
	Segments int   `json:"segments"` // segments that contain a block of the site
	Reserved int64 `json:"reserved"` // bytes of these segments
}

// pinned is the reciprocal of the fraction of live bytes (1/4) below which a segment counts as pinned.
const pinned = 4

func (h *history) pins() Pins {
	var p Pins
	sites := map[int]*Pin{}
	for _, segment := range h.segments {
		for _, part := range parts(segment) {
			if part.live == 0 || part.live*pinned >= part.size {
				continue
			}
			p.Segments++
			p.Reserved += part.size
			here := map[int]bool{}
			for _, b := range part.blocks {
				p.Blocks++
				p.Live += b.Size
				n := h.stacks.number(b.Frames)
				site := sites[n]
				if site == nil {
					site = &Pin{Site: siteOf(b.Frames)}
					sites[n] = site
				}
				site.Blocks++
				site.Live += b.Size
				if !here[n] {
					here[n] = true
					site.Segments++
					site.Reserved += part.size
				}
			}
		}
	}
	for _, site := range sites {
		p.Sites = append(p.Sites, *site)
	}
	slices.SortFunc(p.Sites, func(a, b Pin) int {
		return cmp.Or(cmp.Compare(b.Reserved, a.Reserved), cmp.Compare(a.Live, b.Live), cmp.Compare(a.Site.String(), b.Site.String()))
	})
	return p
}

// unit is memory that is returned to the device as a whole: a segment, or a page.
type unit struct {
	size   int64
	live   int64
	blocks []*snapshot.Block // blocks that begin in it
}

// parts divides a segment into units that are returned as a whole, or returns nil if they are more than a million. A
// block that crosses pages is live in each of them, but counts as a block only in the first.
func parts(s *snapshot.Segment) []unit {
	page := s.Size
	if s.Expandable {
		if page = 20 << 20; s.Small {
			page = 2 << 20
		}
	}
	if page <= 0 || s.Size/page > 1<<20 {
		return nil
	}
	out := make([]unit, (s.Size+page-1)/page)
	for i := range out {
		out[i].size = min(page, s.Size-int64(i)*page)
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.State == snapshot.Inactive || b.Size <= 0 || b.Address < s.Address || b.Address+b.Size > s.End() {
			continue
		}
		from, to := b.Address-s.Address, b.Address-s.Address+b.Size
		for at := from / page; at*page < to; at++ {
			out[at].live += min(to, (at+1)*page) - max(from, at*page)
		}
		out[from/page].blocks = append(out[from/page].blocks, b)
	}
	return out
}
