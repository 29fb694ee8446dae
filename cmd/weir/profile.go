package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

// profile returns the profile in the file, or one made from the costs.
func (c *layoutFlags) profile(plan *schedule.Plan, costs *simulate.Costs) (*layout.Profile, error) {
	if c.Profile == "" {
		if costs == nil {
			return nil, usage("give --profile, or --costs with the bytes of each stage")
		}
		if p := c.profiled; p != nil && c.Lengths == "" {
			return p.pieces.Profile(p.setup, p.cut)
		}
		if costs = costs.Uniform(); costs.Lengths == nil && !costs.HasRates() {
			return layout.FromFigures(plan, figuresFromCosts(plan, costs)), nil
		}
		if err := costs.ValidateLengths(plan.Microbatches); err != nil {
			return nil, err
		}
		profile := &layout.Profile{}
		for _, size := range distinct(costs.Lengths) { // a shape class for each
			one := layout.FromFigures(plan, figuresFromCosts(plan, costs.AtSize(size)))
			one.Shapes[0].Name = fmt.Sprintf("%s, squares of %s", units.Number(size.Tokens, "token"), units.Count(size.Squares))
			profile.StageInfo, profile.Shapes = one.StageInfo, append(profile.Shapes, one.Shapes...)
		}
		return profile, nil
	}
	file, err := os.Open(c.Profile)
	if err != nil {
		return nil, err
	}
	defer file.Close() // Errors do not matter after reading.
	t, err := layout.Read(file)
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		return nil, err
	}
	if err != nil {
		return nil, inFile(c.Profile, err)
	}
	return t, nil
}

// distinct returns the different sizes, in the order in which they first appear.
func distinct(sizes []lengths.Size) (different []lengths.Size) {
	seen := map[lengths.Size]bool{}
	for _, size := range sizes {
		if !seen[size] {
			seen[size], different = true, append(different, size)
		}
	}
	return different
}

// shapesOf returns the shape class of each microbatch of a plan, for a profile from costs with lengths.
func shapesOf(plan *schedule.Plan, costs *simulate.Costs) ([]int, error) {
	if err := costs.ValidateLengths(plan.Microbatches); err != nil {
		return nil, err
	}
	classes, shapes := distinct(costs.Lengths), make([]int, plan.Microbatches)
	for mb := range shapes {
		shapes[mb] = slices.Index(classes, costs.Lengths[plan.BatchIndex(mb)])
	}
	return shapes, nil
}

// figuresFromCosts returns the figures of every stage of a plan from its costs. Costs do not describe
// workspaces, so these are 0.
func figuresFromCosts(plan *schedule.Plan, costs *simulate.Costs) []layout.Figures {
	list := make([]layout.Figures, plan.Placement.Stages())
	for s := range list {
		c := costs.Of(s)
		list[s] = layout.Figures{
			Stage: fmt.Sprintf("stage%d", s), Output: c.Output, Gradient: c.Gradient,
			Input: c.FreedByI, Weight: c.Saved - c.FreedByI, Carry: c.Carry,
			ForwardWeights: c.ForwardWeights, BackwardWeights: c.BackwardWeights,
			Gathered: c.Weights, Gradients: c.Gradients,
		}
	}
	return list
}

// inFile returns an error about a file as faults, without the text of its kind, which the name of the file
// implies.
func inFile(name string, err error) (found unreadable) {
	if at, ok := errors.AsType[*diagnostic.Error](err); ok && at.Line > 0 {
		return unreadable{{File: name, Line: at.Line, Column: at.Column, Text: diagnostic.Text(at.Err, nil)}}
	}
	for line := range strings.SplitSeq(diagnostic.Text(err, nil), "\n") {
		found = append(found, fault{File: name, Text: line})
	}
	return found
}

// layoutError rewrites an error of a layout in terms of the command line's flags.
func (c *layoutFlags) layoutError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, layout.ErrConfig):
		return usage("%w", err)
	case errors.Is(err, layout.ErrProfile) && c.Profile != "":
		return inFile(c.Profile, err)
	}
	text := diagnostic.Text(err, func(kind error) string {
		switch kind {
		case layout.ErrBudget:
			return "the plan does not fit the budget"
		case layout.ErrTooLong:
			return "the program is too long to be planned"
		case layout.ErrProfile:
			return "invalid profile"
		}
		return kind.Error()
	})
	var found faults
	for line := range strings.SplitSeq(text, "\n") {
		found = append(found, fault{Text: "weir: " + line})
	}
	return found
}

// misfitError returns the error for a plan that has another number of stages than the profile, with
// parameters that would fit, if there are any.
func (c *layoutFlags) misfitError(place schedule.Placement, stages int) error {
	what := fmt.Sprintf("%s: the profile has %s, but", c.Profile, units.Number(stages, "stage"))
	named, err := schedule.Find(c.Plan)
	if err != nil {
		return usage("%s the plan has %d: use another profile or another plan", what, place.Depth())
	}
	if c.listed() {
		return usage("%s %s has %d: give a --placement of %s", what, c.Plan, place.Depth(), units.Number(stages, "stage"))
	}
	what = fmt.Sprintf("%s %s on %s has %d", what, c.Plan, units.Number(place.Ranks, "rank"), place.Depth())
	ranks := place.Ranks
	if c.Placement == "" {
		ranks = ranksFor(&named, ranks, stages)
	}
	switch {
	case ranks == 0:
		return usage("%s: no number of ranks gives it %d, use another schedule", what, stages)
	case c.Stages != nil:
		return usage("%s: give --ranks %d --stages %d", what, ranks, stages)
	}
	return usage("%s: give --ranks %d", what, ranks)
}

// listed reports whether --placement gives a rank for each stage.
func (c *layoutFlags) listed() bool {
	return c.Placement != "" && c.Placement != "looped" && c.Placement != "wave"
}

// ranksFor returns the number of ranks, nearest to the wanted one, on which a schedule has
// this number of stages. It returns one rank only if no other number works, and 0 if none
// does.
func ranksFor(s *schedule.Schedule, wanted, stages int) int {
	best := 0
	for ranks := 1; ranks <= max(wanted, stages); ranks++ {
		if _, err := s.Place(ranks, stages); err != nil {
			continue
		}
		if best < 2 || abs(ranks-wanted) < abs(best-wanted) {
			best = ranks
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }
