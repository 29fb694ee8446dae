package schedule

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// maxBody is the maximum number of actions in a body that a rule writes. It limits the size of a group,
// because groups are written out in full.
const maxBody = 1 << 24

// DepthFirst runs every microbatch as far as possible before it starts another one, so that the
// number of microbatches in flight does not depend on their total number.
//
// On one rank, a microbatch runs through all stages, forward and backward, before the next one
// begins. With groups, Group microbatches do so together: the stages run the forward of the whole
// group in ascending order, and then its backward in descending order. If Group does not divide
// Microbatches, the last group is smaller.
//
// With several ranks, each rank that is free runs a ready backward. If none is ready, it runs the
// forward of its highest ready stage, provided that it has fewer microbatches in flight than its cap,
// counting each stage separately (see greedy). The cap of a rank is Params.Cap times the number of its stages, or by
// default the number of stages from its first stage to the last stage of the model; with one stage per rank, the order
// is then 1F1B. Any placement of one copy of the model works.
//
// The size of the plan depends on ranks, stages, cap and group, not on the number of microbatches.
// With several stages per rank, the order may repeat only after many actions, which are written out.
// DepthFirst returns an error if there are more than 4 million of these actions. Errors wrap ErrParams.
func DepthFirst(p Params) (*Plan, error) {
	name := "depth-first"
	if p.Placement.Ranks == 1 {
		if err := p.check(name, takesGroup); err != nil {
			return nil, err
		}
		return p.depthFirstGroups()
	}
	if err := p.check(name+" on several ranks", takesCap); err != nil {
		return nil, err
	}
	if p.Cap > 0 {
		name = fmt.Sprintf("depth-first cap=%d", p.Cap)
	} else if slices.Equal(p.Placement.Rank, Looped(p.Placement.Ranks, p.Placement.Ranks).Rank) {
		plan, err := OneFOneB(p)
		if err == nil {
			plan.Name = name
		}
		return plan, err
	}
	programs, err := greedy(p)
	if err != nil {
		return nil, err
	}
	return p.plan(name, programs...), nil
}

// depthFirstGroups returns the plan of DepthFirst for a single rank.
func (p Params) depthFirstGroups() (*Plan, error) {
	group := min(max(p.Group, 1), p.Microbatches)
	name := "depth-first"
	if group > 1 {
		name = fmt.Sprintf("depth-first group=%d", group)
	}
	if group == p.Microbatches && group > 1 {
		return p.plan(name, breadthFirst(p, 0, 1)...), nil // a single group of all microbatches runs breadth first
	}
	if int64(group)*int64(p.Placement.Stages()) > maxBody/2 {
		return nil, diagnostic.Errorf(ErrParams, "a group of %d microbatches over %d stages is more than %d actions: use a smaller group",
			group, p.Placement.Stages(), maxBody)
	}

	groups, rest := p.Microbatches/group, p.Microbatches%group
	program := []Segment{{Body: oneGroup(p, 0, group), Repeat: groups, Stride: group}}
	if rest > 0 {
		program = append(program, Segment{Body: oneGroup(p, groups*group, rest), Repeat: 1})
	}
	return p.plan(name, program), nil
}

// oneGroup returns the actions of a group of n microbatches, starting with microbatch first.
func oneGroup(p Params, first, n int) []Action {
	stages := p.Placement.Stages()
	body := make([]Action, 0, 2*stages*n)
	for stage := range stages {
		for mb := first; mb < first+n; mb++ {
			body = append(body, NewAction(F, stage, mb))
		}
	}
	for stage := stages - 1; stage >= 0; stage-- {
		for mb := first; mb < first+n; mb++ {
			body = append(body, NewAction(B, stage, mb))
		}
	}
	return body
}
