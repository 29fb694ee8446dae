package format

import "github.com/weir-ml/weir/schedule"

// extent returns the numbers of stages and microbatches of the actions.
func extent(programs []program) (stages, microbatches int) {
	for _, p := range programs {
		for _, a := range p.actions {
			stages, microbatches = max(stages, a.Stage()+1), max(microbatches, a.Microbatch()+1)
		}
	}
	return stages, microbatches
}

// mode returns forward-only if there is no backward.
func mode(programs []program) schedule.Mode {
	for _, p := range programs {
		for _, a := range p.actions {
			if kind := a.Kind(); kind.Compute() && kind != schedule.F {
				return schedule.Training
			}
		}
	}
	return schedule.ForwardOnly
}

// homes puts each stage on the rank with most of its actions, the lowest rank in a tie, so
// that a misplaced action is the one at fault. A stage without actions has its place in a
// loop placement.
func homes(programs []program, stages int) []int {
	home, most, here := make([]int, stages), make([]int, stages), make([]int, stages)
	for stage := range home {
		home[stage] = stage % len(programs)
	}
	for rank, p := range programs {
		for _, a := range p.actions {
			if stage := a.Stage(); stage < stages {
				here[stage]++
			}
		}
		for _, a := range p.actions {
			if stage := a.Stage(); stage < stages {
				if here[stage] > most[stage] {
					home[stage], most[stage] = rank, here[stage]
				}
				here[stage] = 0
			}
		}
	}
	return home
}

// twoCopies reports whether the stages belong to two copies of a model: each forward of the
// lower half of the stages has a microbatch of the lower half, and each of the upper half
// one of the upper half. No plan of one copy has this property.
func twoCopies(programs []program, stages, microbatches int) bool {
	if stages%2 != 0 || microbatches < 2 {
		return false
	}
	for _, p := range programs {
		for _, a := range p.actions {
			lower := a.Stage() < stages/2
			if a.Kind() == schedule.F && lower != (a.Microbatch() < (microbatches+1)/2) {
				return false
			}
		}
	}
	return true
}
