package schedule

// SimulateLeaping is Simulate with leaps in plans of any size.
func SimulateLeaping(plan *Plan, costs *Costs, capacity int) (*Report, error) {
	return simulate(plan, costs, capacity, 0)
}

// SimulateInFull is Simulate without leaps. It has no critical path.
func SimulateInFull(plan *Plan, costs *Costs, capacity int) (*Report, int64, error) {
	s, err := newSimulation(plan, costs, capacity)
	if err != nil {
		return nil, 0, err
	}
	report, err := s.report()
	return report, s.work, err
}

// SimulatedWork is how many actions Simulate runs with leaps in plans of any size.
func SimulatedWork(plan *Plan, costs *Costs, capacity int) (int64, error) {
	s, err := newSimulation(plan, costs, capacity)
	if err != nil {
		return 0, err
	}
	s.leaps = newLeaps(s)
	err = s.run()
	return s.work, err
}
