package fit

import (
	"iter"
	"maps"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// Gradients holds the bytes of the gradients of a stage's weights, in parts. They appear with the stage's
// first B or W in a step and stay until the step's end, as in PyTorch if there are none before the step.
type Gradients struct {
	Parts []int64
	// With maps the buffers of the stage's profile that B or W allocates to the parts that appear then. The
	// other parts appear at the beginning of the action.
	With map[schedule.Kind]map[int]int
}

// Peak is the first moment at which the most bytes of a rank are alive.
type Peak struct {
	Place   int            // in the layout
	Classes memory.ByClass // gradients of weights are Resident
}

// PeakWith returns the peak of a rank if the gradients of its stages, by stage of the model, are counted
// from the moment at which they appear.
func PeakWith(gradients []Gradients, plan *schedule.Plan, made *layout.Memory, rank int) (peak Peak) {
	changes, _ := withGradients(gradients, plan, made, rank)
	var now memory.ByClass
	live, most := int64(0), int64(-1)
	for c := range changes {
		bytes := c.Bytes
		if !c.Alloc {
			bytes = -bytes
		}
		now[c.Class] += bytes
		if live += bytes; live > most {
			most, peak = live, Peak{c.Place, now}
		}
	}
	return peak
}

// withGradients iterates over the changes of a rank and, as allocations of class Resident with negative
// serials, over the gradients that appear between them. It may leave out equal repeats; then complete is
// false.
func withGradients(gradients []Gradients, plan *schedule.Plan, made *layout.Memory, rank int) (all iter.Seq[layout.Change], complete bool) {
	changes, complete := made.AtMost(rank, int64(maxReplayed/len(made.Ranks)))
	if gradients == nil {
		return changes, complete
	}
	program, stages := plan.Flat().Programs[rank], plan.Placement.On(rank)
	return func(yield func(layout.Change) bool) {
		left, serial, place := map[int][]int64{}, 0, -1 // left holds the parts of each stage, which are 0 once they have appeared
		of := func(stage int) *Gradients { return &gradients[stage%len(gradients)] }
		for _, stage := range stages {
			left[stage] = slices.Clone(of(stage).Parts)
		}
		appear := func(stage int, parts []int64) bool {
			for i, bytes := range parts {
				if parts[i] = 0; bytes == 0 {
					continue
				}
				serial--
				if !yield(layout.Change{Alloc: true, Serial: serial, Bytes: bytes, Class: memory.Resident, Place: place, Stage: stage, Microbatch: -1}) {
					return false
				}
			}
			return true
		}
		action, stage := schedule.Kind(0), -1 // the B or W that runs
		for c := range changes {
			if c.Place != place {
				if !appear(stage, left[stage]) {
					return
				}
				place, stage = c.Place, -1
				if a, ok := made.Ranks[rank].Action(program, place); ok && (a.Kind() == schedule.B || a.Kind() == schedule.W) {
					action, stage = a.Kind(), a.Stage()
					listed := slices.Collect(maps.Values(of(stage).With[action]))
					for n := range left[stage] {
						if !slices.Contains(listed, n) && !appear(stage, left[stage][n:n+1]) {
							return
						}
					}
				}
			}
			if c.Alloc && stage >= 0 && c.Stage == stage {
				if n, ok := of(stage).With[action][c.Buffer]; ok && !appear(stage, left[stage][n:n+1]) {
					return
				}
			}
			if !yield(c) {
				return
			}
		}
		for _, stage := range stages {
			if !appear(stage, left[stage]) {
				return
			}
		}
	}, complete
}
