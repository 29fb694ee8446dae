package leaks

import (
	"cmp"
	"fmt"
	"slices"
)

// cut returns the indices of the allocations at which the microbatches of the trace begin, and the site
// that made them. If the number of microbatches is not given, it chooses the call count shared by the
// most sites that recur at even intervals, and returns nil if no site does. If it is given but no site is
// called that often at even intervals, it accepts any site that is called that often, unless all of its
// calls are in one part of the trace; without such a site, it cuts the trace evenly, and the site is nil.
// Allocations before the first cut belong to no microbatch. If the number is not given, it also returns
// the candidates, those with the most sites first.
func (h *history) cut(microbatches int) ([]int, *Site, []Candidate, error) {
	if microbatches > len(h.allocations) {
		return nil, nil, nil, fmt.Errorf("%d microbatches, but the trace of device %d has only %d allocations", microbatches, h.device, len(h.allocations))
	}
	calls := make([][]int, len(h.stacks.texts)) // allocations, by call stack
	for i := range h.allocations {
		stack := h.allocations[i].stack
		calls[stack] = append(calls[stack], i)
	}
	calls = calls[1:] // allocations without a call stack have no site
	site := func(at []int) Site { return siteOf(h.allocations[at[0]].frames) }
	votes := map[int]int{}
	var candidates []Candidate
	for _, at := range calls {
		if n := len(at); n >= enough && h.even(at) {
			if votes[n]++; votes[n] == 1 {
				candidates = append(candidates, Candidate{Microbatches: n, Site: site(at)})
			}
		}
	}
	switch {
	case microbatches > 0:
		candidates = nil
	case len(candidates) == 0:
		return nil, nil, nil, nil
	default:
		for i := range candidates {
			candidates[i].Sites = votes[candidates[i].Microbatches]
		}
		slices.SortFunc(candidates, func(a, b Candidate) int {
			return cmp.Or(b.Sites-a.Sites, b.Microbatches-a.Microbatches)
		})
		microbatches = candidates[0].Microbatches
	}
	for _, at := range calls {
		if len(at) == microbatches && (h.even(at) || votes[microbatches] == 0 && 5*span(at) > len(h.allocations)) {
			anchor := site(at)
			return at, &anchor, candidates, nil
		}
	}
	cuts := make([]int, microbatches)
	for mb := range cuts {
		cuts[mb] = mb * len(h.allocations) / microbatches
	}
	return cuts, nil, candidates, nil
}

// even reports whether calls recur as microbatches do: over more than three fifths of the trace, and with less
// than three tenths of that time in pauses longer than twice the usual pause. The end of a step is such a
// pause, but it is short. A call for every layer is not even: it comes in bursts, with pauses as long as a
// whole backward pass. A call for every parameter is not even either: it comes in only one part of the step.
func (h *history) even(at []int) bool {
	var pauses int
	gaps := make([]int, len(at)-1)
	for i := range gaps {
		gaps[i] = at[i+1] - at[i]
	}
	slices.Sort(gaps)
	for _, gap := range gaps {
		if gap > 2*gaps[len(gaps)/2] {
			pauses += gap
		}
	}
	return 5*span(at) > 3*len(h.allocations) && 10*pauses < 3*span(at)
}

// span returns the distance from the first call to the last one.
func span(at []int) int { return at[len(at)-1] - at[0] }

// microbatch returns the microbatch of an allocation, or -1 before the first one.
func microbatch(cuts []int, allocation int) int {
	at, found := slices.BinarySearch(cuts, allocation)
	if !found {
		at--
	}
	return at
}
