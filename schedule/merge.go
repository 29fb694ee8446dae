package schedule

import (
	"fmt"
	"slices"
)

// Split returns a plan that runs I and then W wherever the plan runs B. Of a joined B
// the I overlaps, and the W comes behind the pair. Drops that the plan had are
// forgotten.
func Split(plan *Plan) *Plan {
	return rewritten(plan, func(body []Action) []Action {
		split := make([]Action, 0, 2*len(body))
		var behind Action // the W that waits for the end of a pair
		for _, a := range body {
			w := behind
			behind = 0
			if a.Kind() == B {
				a, behind = withKind(a, I), withKind(a, W).WithJoin(false)
			}
			split = append(split, a)
			if w != 0 {
				split = append(split, w)
			}
			if behind != 0 && !a.Joined() {
				split = append(split, behind)
				behind = 0
			}
		}
		return split
	})
}

// Unsplit returns a plan that runs B where the plan runs I on one of the stages, and
// none of their W: for stages that have one full backward and no other. A frozen stage
// keeps its I. Drops that the plan had are forgotten. There is one entry for each stage;
// another number is ErrParams.
func Unsplit(plan *Plan, stages []bool) (*Plan, error) {
	if len(stages) != plan.Placement.Stages() {
		return nil, fmt.Errorf("%w: there are %d entries for %d stages: say of each stage whether it cannot split", ErrParams, len(stages), plan.Placement.Stages())
	}
	return rewritten(plan, func(body []Action) []Action {
		whole := make([]Action, 0, len(body))
		for _, a := range body {
			unsplit := stages[a.Stage()] && !plan.frozen(a.Stage())
			switch kind := a.Kind(); {
			case unsplit && kind == I:
				whole = append(whole, withKind(a, B))
			case unsplit && kind == W: // nothing overlaps with it then
				if n := len(whole); n > 0 {
					whole[n-1] = whole[n-1].WithJoin(false)
				}
			default:
				whole = append(whole, a)
			}
		}
		return whole
	}), nil
}

// Merge returns a plan that runs B where the plan runs I and right behind it W of the
// same stage and microbatch, neither of them joined. Drops that the plan had are
// forgotten.
func Merge(plan *Plan) *Plan {
	unrolled := *plan
	unrolled.Programs = make([][]Segment, len(plan.Programs))
	for rank, program := range plan.Programs {
		unrolled.Programs[rank] = together(program)
	}
	return rewritten(&unrolled, func(body []Action) []Action {
		merged := make([]Action, 0, len(body))
		for i := 0; i < len(body); i++ {
			if i+1 < len(body) && merges(body[:i+1], body[i+1:]) {
				merged = append(merged, withKind(body[i], B))
				i++
				continue
			}
			merged = append(merged, body[i])
		}
		return merged
	})
}

// merges reports whether what ends the first list and what begins the second one are
// the two halves of one backward.
func merges(list, next []Action) bool {
	a, b := list[len(list)-1], next[0]
	second := len(list) > 1 && list[len(list)-2].Joined()
	return a.Kind() == I && b.Kind() == W && !second && !a.Joined() && !b.Joined() && withKind(a, W).WithDrop(0) == b.WithDrop(0)
}

// together returns a program that runs the same, in which no two halves of a backward
// stand at the two sides of an end of a body.
func together(program []Segment) []Segment {
	var list []Segment
	for _, s := range program {
		pieces := []Segment{s}
		if s.Repeat > 1 && merges(s.Body, shifted(s.Body[:1], s.Stride)) {
			pieces = rotated(s)
		}
		for _, s := range pieces {
			list = attached(s, list)
		}
	}
	return list
}

// rotated returns the segment with the first action of each repeat but the first in the
// repeat before.
func rotated(s Segment) []Segment {
	last := (s.Repeat - 1) * s.Stride
	return []Segment{
		{Body: s.Body[:1], Repeat: 1},
		{Body: slices.Concat(s.Body[1:], shifted(s.Body[:1], s.Stride)), Repeat: s.Repeat - 1, Stride: s.Stride},
		{Body: shifted(s.Body[1:], last), Repeat: 1},
	}
}

// attached adds the segment to the list, its first repeat in one body with the last
// repeat before it where the halves of a backward would stand apart.
func attached(s Segment, list []Segment) []Segment {
	if len(s.Body) == 0 {
		return list
	}
	if n := len(list); n > 0 && merges(lastRepeat(list[n-1]), s.Body) {
		before, last := cut(list[n-1], list[n-1].Repeat-1)
		first, rest := cut(s, 1)
		list = append(list[:n-1], before...)
		list = append(list, Segment{Body: slices.Concat(last[0].Body, first[0].Body), Repeat: 1})
		return append(list, rest...)
	}
	return append(list, s)
}

// lastRepeat returns the actions of the last repeat.
func lastRepeat(s Segment) []Action { return shifted(s.Body, (s.Repeat-1)*s.Stride) }

// cut returns the segment as its first n repeats and the others, none or one segment
// each.
func cut(s Segment, n int) (first, rest []Segment) {
	if n > 0 {
		first = []Segment{{Body: s.Body, Repeat: n, Stride: s.Stride}}
	}
	if n < s.Repeat {
		rest = []Segment{{Body: shifted(s.Body, n*s.Stride), Repeat: s.Repeat - n, Stride: s.Stride}}
	}
	return first, rest
}

// shifted returns the actions with n added to their microbatches.
func shifted(actions []Action, n int) []Action {
	list := make([]Action, len(actions))
	for i, a := range actions {
		list[i] = a.Shift(n)
	}
	return list
}

// withKind returns the action of another kind.
func withKind(a Action, kind Kind) Action {
	return Act(kind, a.Stage(), a.Microbatch()).WithDrop(a.Drop()).WithJoin(a.Joined())
}

// rewritten returns the plan with every body as the function returns it, without drops.
// Segments whose body comes out empty are gone.
func rewritten(p *Plan, rewrite func(body []Action) []Action) *Plan {
	bare := withoutDrops(p)
	for rank, program := range bare.Programs {
		kept := program[:0]
		for _, s := range program {
			if s.Body = rewrite(s.Body); len(s.Body) > 0 {
				kept = append(kept, s)
			}
		}
		bare.Programs[rank] = kept
	}
	return bare
}
