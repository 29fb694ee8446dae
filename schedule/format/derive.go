package format

import "github.com/weir-ml/weir/schedule"

// extent returns the numbers of stages and microbatches that the actions need.
func extent(programs []program) (stages, microbatches int) {
	for _, p := range programs {
		for _, a := range p.actions {
			stages, microbatches = max(stages, a.Stage()+1), max(microbatches, a.Microbatch()+1)
		}
	}
	return stages, microbatches
}

// majorityRanks returns, by stage, the rank with the most actions of the stage, or the lowest such rank
// if there is a tie. Thus a fault is reported at the misplaced action. For a stage without actions, it
// returns the rank of a looped placement.
func majorityRanks(programs []program, stages int) []int {
	ranks, most, counts := make([]int, stages), make([]int, stages), make([]int, stages)
	for stage := range ranks {
		ranks[stage] = stage % len(programs)
	}
	for rank, p := range programs {
		for _, a := range p.actions {
			if stage := a.Stage(); stage < stages {
				counts[stage]++
			}
		}
		for _, a := range p.actions {
			if stage := a.Stage(); stage < stages {
				if counts[stage] > most[stage] {
					ranks[stage], most[stage] = rank, counts[stage]
				}
				counts[stage] = 0
			}
		}
	}
	return ranks
}

// twoCopies reports whether the stages belong to two copies of a model. If so, the forwards of the
// lower half of the stages have microbatches of the lower half, and the forwards of the upper half
// have microbatches of the upper half. No valid plan of one copy has this property.
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
