package schedule_test

import "github.com/weir-ml/weir/schedule"

// inFlight returns, by rank, the maximum number of microbatches in flight, counting each stage separately. A microbatch
// is in flight from the forward to the full backward or the weight gradient.
func inFlight(p *schedule.Plan) []int {
	peaks := make([]int, len(p.Programs))
	for rank := range peaks {
		held := 0
		for a := range p.All(rank) {
			switch {
			case !p.HasBackward(a.Stage()):
			case a.Kind() == schedule.F:
				held++
			case a.Kind() == schedule.B, a.Kind() == schedule.W, a.Kind() == schedule.I && len(p.Frozen) > 0 && p.Frozen[a.Stage()]:
				held--
			}
			peaks[rank] = max(peaks[rank], held)
		}
	}
	return peaks
}
