package layout

import (
	"context"
	"math"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// ends places what has no place around the rest. What is born near to it gives up its
// place as well, further and further away, until all fits.
func (a *attempt) ends(ctx context.Context, base []int64, search placement.Options) error {
	a.align = a.played.alignment()
	problem := a.problem(a.align)
	for _, near := range reaches {
		search.Fixed = slices.Clone(base)
		a.loosen(search.Fixed, near)
		laid, err := around(ctx, problem, search)
		if err != nil {
			return err
		}
		if a.laid == nil || laid.Height < a.laid.Height {
			a.laid = laid
		}
		if a.laid.Height <= search.Capacity {
			return nil
		}
	}
	return nil
}

// around lays out a problem most of which is fixed: what is fixed and lives at no time
// of what is not is left out.
func around(ctx context.Context, problem *placement.Problem, search placement.Options) (*placement.Layout, error) {
	offsets, height := search.Fixed, int64(0)
	groups := beside(problem, offsets)
	part, fixed := placement.Problem{Buffers: make([]placement.Buffer, len(groups))}, make([]int64, len(groups))
	for k, g := range groups {
		part.Buffers[k], fixed[k] = problem.Buffers[g], offsets[g]
	}
	search.Fixed = fixed
	laid, err := placement.Plan(ctx, &part, search)
	if err != nil {
		return nil, err
	}
	for k, g := range groups {
		offsets[g] = laid.Offsets[k]
	}
	for g, at := range offsets {
		height = max(height, at+problem.Buffers[g].Size)
	}
	return &placement.Layout{Offsets: offsets, Height: height, Method: laid.Method}, nil
}

// beside returns the groups of a problem that are free, or live between the birth and the
// death of one that is.
func beside(problem *placement.Problem, fixed []int64) (groups []int) {
	var busy []stint                    // times of what is free, ascending
	for g, b := range problem.Buffers { // in order of birth
		if fixed[g] >= 0 {
			continue
		}
		if n := len(busy); n > 0 && b.Lower <= busy[n-1].end {
			busy[n-1].end = max(busy[n-1].end, b.Upper)
		} else {
			busy = append(busy, stint{b.Lower, b.Upper})
		}
	}
	next := 0 // of the busy times, the first that ends behind a birth
	for g := range problem.Buffers {
		b := &problem.Buffers[g]
		for next < len(busy) && busy[next].end <= b.Lower {
			next++
		}
		if next < len(busy) && busy[next].begin < b.Upper {
			groups = append(groups, g)
		}
	}
	return groups
}

// reaches are how many changes around a buffer that has no place others give up theirs.
var reaches = [...]int32{0, 8, 32, 128, 512, math.MaxInt32 / 2}

// loosen frees what is born near to what is free, but for what is tied.
func (a *attempt) loosen(fixed []int64, near int32) {
	tied := a.tied()
	var births []int32
	for i, g := range a.group {
		if fixed[g] < 0 {
			births = append(births, a.played.items[i].birth)
		}
	}
	for i, g := range a.group {
		if tied[g] {
			continue
		}
		from, _ := slices.BinarySearch(births, a.played.items[i].birth-near)
		if from < len(births) && births[from] <= a.played.items[i].birth+near {
			fixed[g] = -1
		}
	}
}

// tied says which groups are of several items.
func (a *attempt) tied() []bool {
	tied, seen := make([]bool, a.groups), make([]bool, a.groups)
	for _, g := range a.group {
		tied[g], seen[g] = seen[g], true
	}
	return tied
}
