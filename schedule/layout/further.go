package layout

import (
	"math"
	"slices"
)

const (
	// furthest is how many repeats a segment is played for that has fewer, to see what it
	// would go on with, and mostFurther how much is born by then at most.
	furthest    = 48
	mostFurther = 1 << 14
)

// further plays a program up to a segment, and that for more repeats than it has, as if
// there were more microbatches: a program that is too short to go on and on still begins
// as one that does. It returns nil where it cannot be played for so long.
func (p *Plan) further(ports *ports, rank, segment int) *player {
	if p.cfg.Shapes != nil || p.plan.Placement.Copies > 1 || p.plan.Programs[rank][segment].Repeat < 2 {
		return nil
	}
	longer := *p.plan
	longer.Microbatches = math.MaxInt32
	q := newPlayer(p.plan, p.templates, ports, rank, &p.cfg)
	q.plan, q.limit, q.leap = &longer, mostFurther, &leap{}
	q.program = slices.Clone(q.program[:segment+1])
	q.program[segment].Repeat = furthest
	for s := range q.program {
		if err := q.repeat(s); err != nil {
			return nil
		}
	}
	for i := range q.items {
		if it := &q.items[i]; it.refs > 0 {
			it.death = q.count
		}
	}
	return q
}
