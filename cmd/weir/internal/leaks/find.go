package leaks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weir-ml/weir/memory/snapshot"
)

// Options holds what is already known about a snapshot.
type Options struct {
	// Microbatches is the number of microbatches in the trace, over all of its steps; if it is 0, Find
	// determines it.
	Microbatches int
}

// Report is the result of Find, with an entry for each device that has a trace or a segment.
type Report struct {
	Devices []Device `json:"devices"`
}

// Device is the result for one device. The bytes of groups are those requested, before the allocator rounds
// them.
type Device struct {
	Device       int   `json:"device"`
	Entries      int   `json:"entries"`          // of the trace
	Microbatches int   `json:"microbatches"`     // 0 if the trace has no period
	Anchor       *Site `json:"anchor,omitempty"` // the site whose calls divide the trace into microbatches; nil if it was divided evenly
	// Candidates are the possible numbers of microbatches: the call counts of sites that recur at even
	// intervals, including the chosen one; nil if the number was given.
	Candidates []Candidate `json:"candidates,omitempty"`
	Growing    []Group     `json:"growing"`  // growing with microbatches, the fastest first
	Standing   []Group     `json:"standing"` // live at the end but not growing, the largest first
	Before     Before      `json:"before"`
	Live       int64       `json:"live"`     // bytes in live blocks, as rounded by the allocator
	Reserved   int64       `json:"reserved"` // bytes in segments
	Pins       Pins        `json:"pins"`
}

// Candidate is a number of microbatches that a trace may have.
type Candidate struct {
	Microbatches int  `json:"microbatches"`
	Sites        int  `json:"sites"` // sites with this number of calls
	Site         Site `json:"site"`  // the first of these sites
}

// Group is the set of allocations with one call stack and one size class: a range of sizes in which each is
// less than sixteen times the next smaller one.
type Group struct {
	Site   Site  `json:"site"`
	Size   int64 `json:"size"`   // of the smallest allocation
	Most   int64 `json:"most"`   // of the largest allocation
	Blocks int   `json:"blocks"` // live at the end
	Bytes  int64 `json:"bytes"`  // of the live blocks
	Freed  int   `json:"freed"`  // allocations of the group that were freed
	Before int   `json:"before"` // additional live blocks with this stack and size that were allocated before the trace

	// The following fields are set if the group grows.
	Each  int64 `json:"each,omitempty"`  // median of the bytes that a microbatch adds, over the microbatches that add any
	Rate  int64 `json:"rate,omitempty"`  // mean of the bytes that a microbatch adds, including the microbatches that add none
	First int   `json:"first,omitempty"` // first microbatch that adds, from 0
	Count int   `json:"count,omitempty"` // microbatches that added
	Place int   `json:"place,omitempty"` // index of the group's first remaining allocation within that microbatch, from 0
	Of    int   `json:"of,omitempty"`    // number of allocations in that microbatch
}

// Before summarizes allocations made before the trace begins.
type Before struct {
	Frees  int   `json:"frees"`  // frees of such allocations
	Blocks int   `json:"blocks"` // such allocations that are live at the end
	Bytes  int64 `json:"bytes"`  // total size of these blocks
	Full   bool  `json:"full"`   // some of them have a call stack, so they were recorded and the ring has overflowed since
}

// Find analyses a snapshot. It returns an error if the snapshot has no trace or too many devices,
// or if the given number of microbatches exceeds the number of a device's allocations.
func Find(s *snapshot.Snapshot, options Options) (*Report, error) {
	r := &Report{}
	devices := len(s.Traces)
	for i := range s.Segments {
		devices = max(devices, s.Segments[i].Device+1)
	}
	if devices > maxDevices {
		return nil, fmt.Errorf("%d devices; at most %d are read", devices, maxDevices)
	}
	traced := false
	for device := range devices {
		h := newHistory(s, device)
		if len(h.trace) == 0 && h.reserved == 0 {
			continue
		}
		traced = traced || len(h.allocations) > 0
		found, err := h.find(options)
		if err != nil {
			return nil, err
		}
		r.Devices = append(r.Devices, found)
	}
	if !traced {
		return nil, errors.New("the snapshot has no trace: call torch.cuda.memory._record_memory_history() before the step, and take the snapshot after it")
	}
	return r, nil
}

const maxDevices = 1 << 10

func (h *history) find(options Options) (Device, error) {
	d := Device{Device: h.device, Entries: len(h.trace), Before: h.before, Live: h.live, Reserved: h.reserved, Pins: h.pins()}
	cuts, anchor, candidates, err := h.cut(options.Microbatches)
	if err != nil {
		return d, err
	}
	d.Microbatches, d.Anchor, d.Candidates = len(cuts), anchor, candidates
	for _, of := range h.groups {
		g := h.summarize(of, cuts)
		switch {
		case g.Count > 0:
			d.Growing = append(d.Growing, g)
		case g.Blocks > 0:
			d.Standing = append(d.Standing, g)
		}
	}
	slices.SortStableFunc(d.Growing, func(a, b Group) int { return cmp.Compare(b.Rate, a.Rate) })
	slices.SortStableFunc(d.Standing, func(a, b Group) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return d, nil
}

// enough is the minimum number of microbatches with remaining allocations for a group to count as
// growing: fewer may come from setup in a first microbatch.
const enough = 3

// summarize describes a group, and decides whether it grows.
func (h *history) summarize(of *group, cuts []int) Group {
	one := &h.allocations[of.allocations[0]]
	g := Group{Site: siteOf(one.frames), Size: one.size, Most: one.size, Before: of.before}
	longest := 0 // the longest lifetime of a freed allocation, in microbatches
	for _, i := range of.allocations {
		a := &h.allocations[i]
		if g.Size, g.Most = min(g.Size, a.size), max(g.Most, a.size); a.freed {
			g.Freed++
			longest = max(longest, microbatch(cuts, a.end-1)-microbatch(cuts, i))
		} else {
			g.Blocks++
			g.Bytes += a.size
		}
	}
	judged := len(cuts) // the number of microbatches whose allocations are not merely in flight
	if g.Freed > 0 {
		judged = max(len(cuts)-1-longest, 0)
	}
	first, added := -1, map[int]int64{}             // the first allocation that remains, and bytes by microbatch
	sizes, last := map[int64]int{}, map[int64]int{} // by size: the number of microbatches in which it remains, and the last plus 1
	for _, i := range of.allocations {
		mb, size := microbatch(cuts, i), h.allocations[i].size
		if h.allocations[i].freed || mb < 0 || mb >= judged {
			continue
		}
		if first < 0 {
			first = i
		}
		if added[mb] += size; last[size] != mb+1 {
			sizes[size], last[size] = sizes[size]+1, mb+1
		}
	}
	recurs := false
	for _, n := range sizes {
		recurs = recurs || n >= enough
	}
	if len(added) < enough || !recurs && tapers(slices.Sorted(maps.Keys(added)), judged) {
		return g
	}
	end := len(h.allocations)
	if g.First = microbatch(cuts, first); g.First+1 < len(cuts) {
		end = cuts[g.First+1]
	}
	g.Place, g.Of = first-cuts[g.First], end-cuts[g.First]
	each, adding := slices.Sorted(maps.Values(added)), slices.Sorted(maps.Keys(added))
	g.Count, g.Each = len(each), each[len(each)/2]
	for _, n := range each {
		g.Rate += n
	}
	// Between the first and the last microbatch that add, Count-1 of the Count additions were made.
	g.Rate = int64(math.Round(float64(g.Rate) * float64(g.Count-1) / float64(g.Count) / float64(adding[g.Count-1]-adding[0])))
	return g
}

// tapers reports whether the last microbatch that adds memory was long before the last of n microbatches. A
// cache with an entry for every length of a sequence adds memory ever more rarely.
func tapers(adding []int, n int) bool {
	pause := 0
	for i := 1; i < len(adding); i++ {
		pause = max(pause, adding[i]-adding[i-1])
	}
	return n-1-adding[len(adding)-1] > 2*pause
}

// Total returns the bytes by which all growing groups grow with each microbatch.
func (d *Device) Total() int64 {
	var total int64
	for _, g := range d.Growing {
		total += g.Rate
	}
	return total
}
