package format

import "github.com/weir-ml/weir/schedule"

// extent returns how many stages and microbatches the actions are of.
func extent(programs []program) (stages, microbatches int) {
	for _, p := range programs {
		for _, a := range p.actions {
			stages, microbatches = max(stages, a.Stage()+1), max(microbatches, a.Microbatch()+1)
		}
	}
	return stages, microbatches
}

// mode is forward-only where nothing runs backward.
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

// homes puts each stage on the rank that has most of its actions, the lowest where
// several do, so that an action that has strayed is the one at fault. A stage without
// actions is where it would be in a loop.
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

// twoCopies reports whether the stages are those of two copies of a model: each
// forward of the lower half of the stages is of the lower half of the microbatches,
// and each of the upper half of the upper. No plan of one copy is like that.
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
