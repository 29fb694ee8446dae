package check_test

import (
	"math/rand/v2"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/plantest"
)

// judgePlan returns what is wrong with a plan of plain lists, "" where nothing is.
func judgePlan(p *schedule.Plan, capacity int, rng *rand.Rand) string {
	j := &plantest.Judge{P: p, Capacity: capacity, Done: map[schedule.Action]int{}, Links: map[[3]int][]schedule.Action{},
		Gathered: map[int]bool{}, Sharded: map[int]bool{}, Reduces: map[int]bool{}, Added: map[int]bool{}, Quantizes: map[int]bool{}, Taken: map[schedule.Action]bool{}}
	for rank := range p.Programs {
		j.Lists = append(j.Lists, slices.Collect(p.All(rank)))
	}
	if fault := j.Count(); fault != "" {
		return fault
	}
	for {
		moved := false
		for _, rank := range rng.Perm(len(j.Lists)) {
			for n := 1 + rng.IntN(3); n > 0 && len(j.Lists[rank]) > 0; n-- {
				ran, fault := j.Step(rank)
				if fault != "" {
					return fault
				}
				if !ran {
					break
				}
				moved = true
			}
		}
		if moved {
			continue
		}
		return j.End()
	}
}
