package leaks

import (
	"cmp"
	"fmt"
	"slices"
)

// cut returns where the microbatches of the trace begin, as numbers of allocations,
// and the site whose calls they are. Without a number it takes the one that most sites
// share among those that are called as evenly as microbatches come. With one, where no
// site is called so often and evenly, one that is called so often will do, unless that
// is all in one part of the trace. Allocations before the first cut belong to none. What it
// chose from without a number is returned as well, those of most sites first.
func (h *history) cut(microbatches int) ([]int, *Site, []Candidate, error) {
	if microbatches > len(h.births) {
		return nil, nil, nil, fmt.Errorf("leaks: %d microbatches, and the trace of device %d has %d allocations", microbatches, h.device, len(h.births))
	}
	calls := map[int][]int{} // by stack, its allocations
	var stacks []int
	for i := range h.births {
		stack := h.births[i].stack
		if calls[stack] == nil {
			stacks = append(stacks, stack)
		}
		calls[stack] = append(calls[stack], i)
	}
	votes := map[int]int{}
	var candidates []Candidate
	for _, stack := range stacks {
		if n := len(calls[stack]); n >= enough && stack != 0 && h.even(calls[stack]) {
			if votes[n]++; votes[n] == 1 {
				candidates = append(candidates, Candidate{Microbatches: n, Site: siteOf(h.births[calls[stack][0]].frames)})
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
	for _, stack := range stacks {
		at := calls[stack]
		if len(at) == microbatches && stack != 0 && (h.even(at) || votes[microbatches] == 0 && 5*span(at) > len(h.births)) {
			site := siteOf(h.births[at[0]].frames)
			return at, &site, candidates, nil
		}
	}
	cuts := make([]int, microbatches)
	for mb := range cuts {
		cuts[mb] = mb * len(h.births) / microbatches
	}
	return cuts, nil, candidates, nil
}

// even reports that calls come like microbatches do: over more than three fifths of the
// trace, and with pauses longer than twice the usual one for less than three tenths of
// that time. The end of a step is such a pause, and short. A call for every layer is not
// even: it comes in bursts, and pauses for a whole backward. Neither is one for every
// parameter: it comes in one part of the step.
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
	return 5*span(at) > 3*len(h.births) && 10*pauses < 3*span(at)
}

// span is from the first call to the last one.
func span(at []int) int { return at[len(at)-1] - at[0] }

// microbatch returns that of an allocation; -1 is before the first one.
func microbatch(cuts []int, allocation int) int {
	at, found := slices.BinarySearch(cuts, allocation)
	if !found {
		at--
	}
	return at
}

// bounds returns the allocations of a microbatch.
func bounds(cuts []int, mb, all int) (start, end int) {
	if mb+1 < len(cuts) {
		return cuts[mb], cuts[mb+1]
	}
	return cuts[mb], all
}
