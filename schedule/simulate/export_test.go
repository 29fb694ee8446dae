package simulate

import "github.com/weir-ml/weir/schedule"

// Leaping is Run with leaps in plans of any size.
func Leaping(plan *schedule.Plan, costs *Costs, capacity int) (*Report, error) {
	return simulate(plan, costs, capacity, 0)
}

// InFull is Run without leaps. It has no critical path.
func InFull(plan *schedule.Plan, costs *Costs, capacity int) (*Report, int64, error) {
	s, err := newSimulation(plan, costs, capacity)
	if err != nil {
		return nil, 0, err
	}
	report, err := s.report()
	return report, s.work, err
}

// Work is how many actions Run runs with leaps in plans of any size.
func Work(plan *schedule.Plan, costs *Costs, capacity int) (int64, error) {
	s, err := newSimulation(plan, costs, capacity)
	if err != nil {
		return 0, err
	}
	s.skips = newSkips(s)
	err = s.run()
	return s.work, err
}
