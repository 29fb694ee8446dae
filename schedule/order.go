package schedule

import "fmt"

// order proves, rank by rank, that every action comes after those on its rank that
// it needs. What it needs of other ranks is not in the hands of its own: links proves
// that it comes. Where the census has seen nothing come too early, nothing is left to
// find.
func (c *checker) order() {
	if c.ordered {
		return
	}
	sets := c.stages * kindsPerStage
	v := &ordering{c: c, walk: newWalk(2 * sets), totals: sets, needs: make([]need, 0, sets), from: make([]int, 1, sets+1)}
	v.every = c.plan.Slices
	copy(v.sets[sets:], c.totals)
	for set := range sets {
		v.needs = c.needs(v.needs, set/kindsPerStage, Kind(set%kindsPerStage))
		v.from = append(v.from, len(v.needs))
	}
	for rank, program := range c.plan.Programs {
		v.rank = rank
		v.program(program, false, v)
		if c.unproved(&v.walk, rank) {
			return
		}
	}
	c.looked(&v.walk)
}

// ordering is the visitor that does the actions in the order of each rank.
type ordering struct {
	walk
	c      *checker
	rank   int
	totals int // the index of the first set that says what the plan has at all

	needs []need // of all stages and kinds
	from  []int  // by set: the first of its needs; the last one ends where the next set's begin
}

func (v *ordering) repeats(int64) {}

// visit does an action, whatever it still needs.
func (v *ordering) visit(a Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if kind > WaitB || !c.allows(stage, kind) {
		return
	}
	set := c.set(stage, kind)
	for i := v.from[set]; i < v.from[set+1]; i++ {
		n, of := &v.needs[i], mb
		if n.remote {
			continue
		}
		if n.on != 0 {
			var sliced bool
			if of, sliced = c.neighbour(mb, n.on); !v.within(of, c.span(stage)) || !sliced {
				continue
			}
		}
		if !v.met(n, of) {
			v.early(a, mb, n, of)
		}
	}
	v.add(set, mb)
}

// met reports whether what is needed is done, or is not in the plan at all,
// which the census has said.
func (v *ordering) met(n *need, mb int64) bool {
	has := func(first int, kind Kind) bool {
		return kind != None && v.has(first+v.c.set(n.stage, kind), mb)
	}
	return has(0, n.kind) || has(0, n.or) || !has(v.totals, n.kind) && !has(v.totals, n.or)
}

// early adds a fault for an action that runs before what it needs.
func (v *ordering) early(a Action, mb int64, n *need, of int64) {
	kind := n.kind
	if n.or != None && v.has(v.totals+v.c.set(n.stage, n.or), of) {
		kind = n.or
	}
	first := Act(kind, n.stage, 0).Shift(int(of))
	v.c.at(&v.walk, v.rank, a, mb, Order, fmt.Sprint(n.why), "runs before %v, %s; move %v before it.", first, reasons[n.why], first)
}
