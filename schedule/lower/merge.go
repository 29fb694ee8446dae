package lower

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// Split returns a plan in which each B is replaced by I followed by W. If the B is joined, the I takes
// its place in the pair, and the W comes after the pair. The result has no drops.
func Split(plan *schedule.Plan) *schedule.Plan {
	return rewritten(plan, func(body []schedule.Action) []schedule.Action {
		split := make([]schedule.Action, 0, 2*len(body))
		var after schedule.Action // the W to append at the end of a pair
		for _, a := range body {
			w := after
			after = 0
			if a.Kind() == schedule.B {
				a, after = withKind(a, schedule.I), withKind(a, schedule.W).WithJoin(false)
			}
			split = append(split, a)
			if w != 0 {
				split = append(split, w)
			}
			if after != 0 && !a.Joined() {
				split = append(split, after)
				after = 0
			}
		}
		return split
	})
}

// Unsplit returns a plan in which each I of the given stages is replaced by B, and each W of these stages is
// removed. It is for stages that support only a full backward. stages[i] selects stage i; frozen stages keep their I.
// The result has no drops. If the length of stages is not the number of stages, the error wraps
// ErrParams.
func Unsplit(plan *schedule.Plan, stages []bool) (*schedule.Plan, error) {
	if len(stages) != plan.Placement.Stages() {
		return nil, diagnostic.Errorf(schedule.ErrParams, "there are %d entries for %d stages: give one entry for each stage", len(stages), plan.Placement.Stages())
	}
	if has := plan.Kinds(); !has[schedule.I] && !has[schedule.W] {
		return withoutDrops(plan), nil
	}
	return rewritten(plan, func(body []schedule.Action) []schedule.Action {
		whole := make([]schedule.Action, 0, len(body))
		for _, a := range body {
			unsplit := stages[a.Stage()] && !plan.IsFrozen(a.Stage())
			switch kind := a.Kind(); {
			case unsplit && kind == schedule.I:
				whole = append(whole, withKind(a, schedule.B))
			case unsplit && kind == schedule.W: // removed, so the previous action has no partner
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

// Merge returns a plan in which each I, together with an immediately following W of the same stage and
// microbatch, is replaced by B, unless one of the two belongs to a joined pair. The result has no drops.
func Merge(plan *schedule.Plan) *schedule.Plan {
	unrolled := *plan
	unrolled.Programs = make([][]schedule.Segment, len(plan.Programs))
	for rank, program := range plan.Flat().Programs {
		unrolled.Programs[rank] = joinHalves(program)
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

// merges reports whether the last action of list and the first action of next are the two halves of
// one backward and belong to no joined pair.
func merges(list, next []schedule.Action) bool {
	a, b := list[len(list)-1], next[0]
	second := len(list) > 1 && list[len(list)-2].Joined()
	return a.Kind() == schedule.I && b.Kind() == schedule.W && !second && !a.Joined() && !b.Joined() && withKind(a, schedule.W).WithDrop(0) == b.WithDrop(0)
}

// joinHalves returns an equivalent program in which the two halves of a backward are never
// separated by the end of a body.
func joinHalves(program []schedule.Segment) []schedule.Segment {
	var list []schedule.Segment
	for _, s := range program {
		pieces := []schedule.Segment{s}
		if s.Repeat > 1 && merges(s.Body, shifted(s.Body[:1], s.Stride)) {
			pieces = rotate(s)
		}
		for _, s := range pieces {
			list = attach(s, list)
		}
	}
	return list
}

// rotate returns equivalent segments in which the first action of each repeat after the first has
// moved to the end of the previous repeat.
func rotate(s schedule.Segment) []schedule.Segment {
	last := (s.Repeat - 1) * s.Stride
	return []schedule.Segment{
		{Body: s.Body[:1], Repeat: 1},
		{Body: slices.Concat(s.Body[1:], shifted(s.Body[:1], s.Stride)), Repeat: s.Repeat - 1, Stride: s.Stride},
		{Body: shifted(s.Body[1:], last), Repeat: 1},
	}
}

// attach appends the segment to the list. If the last action of the list and the first action of the
// segment are the halves of a backward, it puts the last repeat of the list and the first repeat of the
// segment into one body.
func attach(s schedule.Segment, list []schedule.Segment) []schedule.Segment {
	if len(s.Body) == 0 {
		return list
	}
	if n := len(list); n > 0 {
		before, last := cut(list[n-1], list[n-1].Repeat-1)
		if merges(last[0].Body, s.Body) {
			first, rest := cut(s, 1)
			list = append(list[:n-1], before...)
			list = append(list, schedule.Segment{Body: slices.Concat(last[0].Body, first[0].Body), Repeat: 1})
			return append(list, rest...)
		}
	}
	return append(list, s)
}

// cut splits a segment without inner segments after its first n repeats. Each result has at most one
// segment.
func cut(s schedule.Segment, n int) (first, rest []schedule.Segment) {
	if n > 0 {
		first = []schedule.Segment{{Body: s.Body, Repeat: n, Stride: s.Stride}}
	}
	if n < s.Repeat {
		rest = []schedule.Segment{{Body: shifted(s.Body, n*s.Stride), Repeat: s.Repeat - n, Stride: s.Stride}}
	}
	return first, rest
}

// firstRepeats inserts actions into the first repeat of each segment. It does not cut a segment for
// which insert adds nothing.
func firstRepeats(program []schedule.Segment, insert func(body []schedule.Action) []schedule.Action) (list []schedule.Segment) {
	for _, s := range program {
		first, rest := cut(s, 1)
		if body := insert(first[0].Body); len(body) > len(s.Body) {
			list = append(append(list, schedule.Segment{Body: body, Repeat: 1}), rest...)
		} else {
			list = append(list, s)
		}
	}
	return list
}

// shifted returns a copy of the actions with n added to their microbatches.
func shifted(actions []schedule.Action, n int) []schedule.Action {
	list := make([]schedule.Action, len(actions))
	for i, a := range actions {
		list[i] = a.Shift(n)
	}
	return list
}

// withKind returns the action with another kind.
func withKind(a schedule.Action, kind schedule.Kind) schedule.Action {
	return schedule.NewAction(kind, a.Stage(), a.Microbatch()).WithDrop(a.Drop()).WithJoin(a.Joined())
}

// rewritten returns the plan with rewrite applied to every body, and without drops. It removes
// segments whose body becomes empty.
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
