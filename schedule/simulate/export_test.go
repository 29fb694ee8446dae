package simulate

import (
	"math"

	"github.com/weir-ml/weir/schedule"
)

// Leaping is Run, but skips repeats in plans of any size.
func Leaping(plan *schedule.Plan, costs *Costs, capacity int) (*Report, error) {
	s, err := newSimulation(plan, costs, capacity, 0)
	if err != nil {
		return nil, err
	}
	return s.report()
}

// InFull is Run without skipping repeats and without a critical path.
func InFull(plan *schedule.Plan, costs *Costs, capacity int) (*Report, int64, error) {
	s, err := newSimulation(plan, costs, capacity, math.MaxInt64)
	if err != nil {
		return nil, 0, err
	}
	s.recordsDelays = false
	report, err := s.report()
	return report, s.machine.Sets.Work(), err
}

// Work returns the number of actions that Run tries if it skips repeats in plans of any size.
func Work(plan *schedule.Plan, costs *Costs, capacity int) (int64, error) {
	s, err := newSimulation(plan, costs, capacity, 0)
	if err != nil {
		return 0, err
	}
	err = s.run()
	return s.machine.Sets.Work(), err
}
