package lower

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Split returns a plan that runs I and then W in place of each B. If the B is joined the I overlaps,
// and the W comes after the pair. Drops that the plan had are forgotten.
func Split(plan *schedule.Plan) *schedule.Plan {
	return rewritten(plan, func(body []schedule.Action) []schedule.Action {
		split := make([]schedule.Action, 0, 2*len(body))
		var behind schedule.Action // the W that waits for the end of a pair
		for _, a := range body {
			w := behind
			behind = 0
			if a.Kind() == schedule.B {
				a, behind = withKind(a, schedule.I), withKind(a, schedule.W).WithJoin(false)
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

// Unsplit returns a plan that runs B in place of each I of the given stages, and none of their W: for
// stages that have a full backward only. A frozen stage keeps its I. Drops that the plan had are forgotten. There is one entry for each stage;
// another number is ErrParams.
func Unsplit(plan *schedule.Plan, stages []bool) (*schedule.Plan, error) {
	if len(stages) != plan.Placement.Stages() {
		return nil, fmt.Errorf("%w: there are %d entries for %d stages: say of each stage whether it cannot split", schedule.ErrParams, len(stages), plan.Placement.Stages())
	}
	if !splits(plan) {
		return withoutDrops(plan), nil
	}
	return rewritten(plan, func(body []schedule.Action) []schedule.Action {
		whole := make([]schedule.Action, 0, len(body))
		for _, a := range body {
			unsplit := stages[a.Stage()] && !plan.IsFrozen(a.Stage())
			switch kind := a.Kind(); {
			case unsplit && kind == schedule.I:
				whole = append(whole, withKind(a, schedule.B))
			case unsplit && kind == schedule.W: // nothing overlaps with it then
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

// splits reports whether the plan has backwards in two halves.
func splits(plan *schedule.Plan) bool {
	for _, program := range plan.Programs {
		for a := range schedule.Written(program) {
			if a.Kind() == schedule.I || a.Kind() == schedule.W {
				return true
			}
		}
	}
	return false
}

// Merge returns a plan that runs B in place of an I and the W of the same stage and microbatch right
// after it, if neither of them is joined. Drops that the plan had are forgotten.
func Merge(plan *schedule.Plan) *schedule.Plan {
	unrolled := *plan
	unrolled.Programs = make([][]schedule.Segment, len(plan.Programs))
	for rank, program := range plan.Flat().Programs {
		unrolled.Programs[rank] = together(program)
	}
	return rewritten(&unrolled, func(body []schedule.Action) []schedule.Action {
		merged := make([]schedule.Action, 0, len(body))
		for i := 0; i < len(body); i++ {
			if i+1 < len(body) && merges(body[:i+1], body[i+1:]) {
				merged = append(merged, withKind(body[i], schedule.B))
				i++
				continue
			}
			merged = append(merged, body[i])
		}
		return merged
	})
}

// merges reports whether the last action of the first list and the first action of the second one
// are the two halves of one backward.
func merges(list, next []schedule.Action) bool {
	a, b := list[len(list)-1], next[0]
	second := len(list) > 1 && list[len(list)-2].Joined()
	return a.Kind() == schedule.I && b.Kind() == schedule.W && !second && !a.Joined() && !b.Joined() && withKind(a, schedule.W).WithDrop(0) == b.WithDrop(0)
}

// together returns a program that runs the same, in which no end of a body separates the two halves
// of a backward.
func together(program []schedule.Segment) []schedule.Segment {
	var list []schedule.Segment
	for _, s := range program {
		pieces := []schedule.Segment{s}
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
func rotated(s schedule.Segment) []schedule.Segment {
	last := (s.Repeat - 1) * s.Stride
	return []schedule.Segment{
		{Body: s.Body[:1], Repeat: 1},
		{Body: slices.Concat(s.Body[1:], shifted(s.Body[:1], s.Stride)), Repeat: s.Repeat - 1, Stride: s.Stride},
		{Body: shifted(s.Body[1:], last), Repeat: 1},
	}
}

// attached adds the segment to the list, its first repeat in one body with the last
// repeat before it if their ends are the halves of a backward.
func attached(s schedule.Segment, list []schedule.Segment) []schedule.Segment {
	if len(s.Body) == 0 {
		return list
	}
	if n := len(list); n > 0 && merges(lastRepeat(list[n-1]), s.Body) {
		before, last := cut(list[n-1], list[n-1].Repeat-1)
		first, rest := cut(s, 1)
		list = append(list[:n-1], before...)
		list = append(list, schedule.Segment{Body: slices.Concat(last[0].Body, first[0].Body), Repeat: 1})
		return append(list, rest...)
	}
	return append(list, s)
}

// lastRepeat returns the actions of the last repeat.
func lastRepeat(s schedule.Segment) []schedule.Action { return shifted(s.Body, (s.Repeat-1)*s.Stride) }

// cut returns the segment as its first n repeats and the others, none or one segment
// each.
func cut(s schedule.Segment, n int) (first, rest []schedule.Segment) {
	if n > 0 {
		first = []schedule.Segment{{Body: s.Body, Repeat: n, Stride: s.Stride}}
	}
	if n < s.Repeat {
		rest = []schedule.Segment{{Body: shifted(s.Body, n*s.Stride), Repeat: s.Repeat - n, Stride: s.Stride}}
	}
	return first, rest
}

// shifted returns the actions with n added to their microbatches.
func shifted(actions []schedule.Action, n int) []schedule.Action {
	list := make([]schedule.Action, len(actions))
	for i, a := range actions {
		list[i] = a.Shift(n)
	}
	return list
}

// withKind returns the action of another kind.
func withKind(a schedule.Action, kind schedule.Kind) schedule.Action {
	return schedule.Act(kind, a.Stage(), a.Microbatch()).WithDrop(a.Drop()).WithJoin(a.Joined())
}

// rewritten returns the plan with every body as the function returns it, without drops.
// Segments whose body becomes empty are removed.
func rewritten(p *schedule.Plan, rewrite func(body []schedule.Action) []schedule.Action) *schedule.Plan {
	bare := withoutDrops(p)
	for rank, program := range bare.Programs {
		bare.Programs[rank] = rewriteSegments(program, rewrite)
	}
	return bare
}

func rewriteSegments(segments []schedule.Segment, rewrite func(body []schedule.Action) []schedule.Action) []schedule.Segment {
	kept := segments[:0]
	for _, s := range segments {
		if s.Inner != nil {
			s.Inner = rewriteSegments(s.Inner, rewrite)
		} else {
			s.Body = rewrite(s.Body)
		}
		if len(s.Body)+len(s.Inner) > 0 {
			kept = append(kept, s)
		}
	}
	return kept
}
