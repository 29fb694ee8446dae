package leaks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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

// Device is the result for one device. The bytes of groups are as requested.
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

// Group is the set of allocations with one call stack and one size.
type Group struct {
	Site   Site  `json:"site"`
	Size   int64 `json:"size"`   // per allocation
	Blocks int   `json:"blocks"` // live at the end
	Bytes  int64 `json:"bytes"`  // of the live blocks
	Freed  int   `json:"freed"`  // allocations of the group that were freed
	Before int   `json:"before"` // additional live blocks with this stack and size that were allocated before the trace

	// If it grows:
	Each  int64 `json:"each,omitempty"`  // median of the bytes that a microbatch adds
	First int   `json:"first,omitempty"` // first microbatch that adds, from 0
	Count int   `json:"count,omitempty"` // microbatches that added
	Place int   `json:"place,omitempty"` // index of its first allocation within that microbatch, from 0
	Of    int   `json:"of,omitempty"`    // number of allocations in that microbatch
}

// Before summarizes allocations made before the trace begins.
type Before struct {
	Frees  int   `json:"frees"`  // frees of such allocations
	Blocks int   `json:"blocks"` // such allocations that are live at the end
	Bytes  int64 `json:"bytes"`  // total size of these blocks
	Full   bool  `json:"full"`   // some of them have a call stack, so they were recorded and the ring has overflowed since
}

// Find analyses a snapshot. It returns an error if the snapshot has no trace, or if the given
// number of microbatches exceeds the number of allocations.
func Find(s *snapshot.Snapshot, options Options) (*Report, error) {
	r := &Report{}
	devices := len(s.Traces)
	for i := range s.Segments {
		devices = max(devices, s.Segments[i].Device+1)
	}
	if devices > maxDevices {
		return nil, fmt.Errorf("leaks: %d devices; at most %d are read", devices, maxDevices)
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
		return nil, errors.New("leaks: the snapshot has no trace: call torch.cuda.memory._record_memory_history() before the step, and take the snapshot after it")
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
	slices.SortStableFunc(d.Growing, func(a, b Group) int { return cmp.Compare(b.Each, a.Each) })
	slices.SortStableFunc(d.Standing, func(a, b Group) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return d, nil
}

// enough is the minimum number of microbatches with remaining allocations for a group to count as
// growing: one or two may be setup in a first microbatch.
const enough = 3

// summarize describes a group, and decides whether it grows.
func (h *history) summarize(of *group, cuts []int) Group {
	first := &h.allocations[of.allocations[0]]
	g := Group{Site: siteOf(first.frames), Size: first.size, Before: of.before}
	longest := 0 // the longest lifetime of a freed allocation, in microbatches
	for _, i := range of.allocations {
		if a := &h.allocations[i]; a.freed {
			g.Freed++
			longest = max(longest, microbatch(cuts, a.end-1)-microbatch(cuts, i))
		} else {
			g.Blocks++
			g.Bytes += a.size
		}
	}
	added := map[int]int64{} // bytes, by microbatch
	for _, i := range of.allocations {
		mb := microbatch(cuts, i)
		age := len(cuts) - 1 - mb
		if h.allocations[i].freed || mb < 0 || g.Freed > 0 && age <= longest {
			continue
		}
		if len(added) == 0 {
			end := len(h.allocations)
			if mb+1 < len(cuts) {
				end = cuts[mb+1]
			}
			g.First, g.Place, g.Of = mb, i-cuts[mb], end-cuts[mb]
		}
		added[mb] += h.allocations[i].size
	}
	if len(added) < enough {
		g.First, g.Place, g.Of = 0, 0, 0
		return g
	}
	each := slices.Sorted(maps.Values(added))
	g.Count, g.Each = len(each), each[len(each)/2]
	return g
}

// Total returns the bytes that each microbatch adds, over all growing groups.
func (d *Device) Total() int64 {
	var total int64
	for _, g := range d.Growing {
		total += g.Each
	}
	return total
}
