package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

const (
	// quickWork is the default effort of the search for the layout of one rank of an alternative.
	// longerWork is the total effort for all ranks of the promising alternatives.
	quickWork  = 1
	longerWork = 2_000_000
	// maxBirths is the largest number of allocations of a program that is laid out.
	maxBirths = 100_000
	// maxCuts is the largest number of pieces into which a microbatch of --costs is cut.
	maxCuts = 4
)

// alternative is another way to run the step, with the same tokens.
type alternative struct {
	Name     string  `json:"name"`
	Bytes    int64   `json:"bytes,omitempty"` // 0 if it is not laid out, because another alternative already beats its bound, its program is too long, or the layout failed
	Bound    int64   `json:"bound"`           // lower bound of its layouts
	Makespan float64 `json:"makespan"`
	// Microbatches is the number of microbatches in a step. The number of tokens in a step stays the same.
	Microbatches int `json:"microbatches"`
	// Best is set if no other alternative with the same number of microbatches beats it, and none before it equals it.
	Best bool `json:"best"`

	other *layout.Alternative
}

// beats reports whether an alternative is at least as low and as fast as another, and lower or faster. It
// compares only alternatives with microbatches of the same size, because the fixed cost of a microbatch is
// unknown.
func (o *alternative) beats(other *alternative) bool {
	return o.Bytes > 0 && o.Microbatches == other.Microbatches && o.Bytes <= other.Bytes && o.Makespan <= other.Makespan && (o.Bytes < other.Bytes || o.Makespan < other.Makespan)
}

// equals reports whether two alternatives with the same number of microbatches need the same bytes and time.
func (o *alternative) equals(other alternative) bool {
	return o.Microbatches == other.Microbatches && o.Bytes == other.Bytes && o.Makespan == other.Makespan
}

// alternatives returns other ways to run the step; there are none for a plan from a file.
func (c *memPlanCmd) alternatives(step *step) (list []layout.Alternative, err error) {
	named, err := schedule.Find(c.Plan)
	if err != nil {
		return nil, nil
	}
	params, err := c.params(&named)
	if err != nil {
		return nil, err
	}
	// add adds the plan for other parameters or another profile, unless name is "", and its variants.
	add := func(name string, params schedule.Params, profile *layout.Profile) {
		passes, err := c.passes(params.Placement, profile)
		if err != nil {
			return
		}
		one := layout.Alternative{Rule: named.Rule, Params: params, Profile: profile, Passes: passes}
		if name != "" {
			one.Name, one.Changes = name, 1
			list = append(list, one)
		}
		list = append(list, one.Variants()...)
	}
	add("", params, step.profile)
	if c.Less != "" {
		less := *c
		less.Profile = c.Less
		t, err := less.profile(step.plan, step.costs)
		if err != nil {
			return nil, err
		}
		place := step.plan.Placement
		if n := len(t.Shapes[0].Stages); n != place.Depth() && n != place.Stages() {
			return nil, usage("%s: the profile has %s, but the plan has %d: give --recompute a profile with the same stages", c.Less, units.Number(n, "stage"), place.Depth())
		}
		add("stages that recompute", params, t)
	}
	if c.Profile == "" { // figures are proportional to tokens
		for cut := 2; cut <= maxCuts; cut *= 2 {
			smaller := params
			smaller.Microbatches *= cut
			name := fmt.Sprintf("%d microbatches of 1/%d the size", smaller.Microbatches, cut)
			add(name, smaller, layout.FromFigures(step.plan, cutFigures(figuresFromCosts(step.plan, step.costs), cut)))
		}
	}
	for ranks := params.Placement.Ranks + 1; ranks <= params.Placement.Depth(); ranks++ {
		p, err := named.Place(ranks, params.Placement.Depth())
		if err != nil || c.Placement != "" {
			continue
		}
		wider := params
		wider.Placement = p
		if passes, err := c.passes(p, step.profile); err == nil {
			list = append(list, layout.Alternative{Name: units.Number(ranks, "rank"), Changes: 1, Rule: named.Rule, Params: wider, Profile: step.profile, Passes: passes})
		}
		break
	}
	return list, nil
}

// cutFigures divides the figures of a microbatch by cut, rounds them up, and returns them.
func cutFigures(figures []layout.Figures, cut int) []layout.Figures {
	n := int64(cut)
	for i := range figures {
		f := &figures[i]
		for _, bytes := range []*int64{&f.Output, &f.Gradient, &f.Input, &f.Weight, &f.Carry, &f.Forward, &f.Backward} {
			*bytes = (*bytes + n - 1) / n
		}
	}
	return figures
}

// whatIf simulates the alternatives and lays them out. It skips an alternative that another one would beat even
// if the first needed only its lower bound. At first every layout gets little effort; then those that may
// improve get more.
func (c *memPlanCmd) whatIf(ctx context.Context, step *step, asItIs layout.Alternative, others []layout.Alternative) ([]alternative, error) {
	first, err := c.simulateAlternative(step, &asItIs)
	if err != nil {
		return nil, err
	}
	list := []alternative{first}
	for _, other := range layout.Weigh(others, step.cfg) {
		if one, err := c.simulateAlternative(step, &other); err == nil { // otherwise its time is unknown
			list = append(list, one)
		}
	}
	byBound := make([]*alternative, 0, len(list))
	for i := range list[1:] {
		byBound = append(byBound, &list[i+1])
	}
	slices.SortStableFunc(byBound, func(a, b *alternative) int { return cmp.Compare(a.Bound, b.Bound) })
	// layOut lays out alternatives, and returns those that may improve.
	layOut := func(some []*alternative, work int64) (open []*alternative) {
		for _, one := range some {
			low := *one
			low.Bytes = low.Bound
			if one.other.Allocations > maxBirths || beaten(list, &low) || one.other.LayOut(ctx, cmp.Or(c.Work, work)) != nil {
				continue
			}
			if one.Bytes = one.other.Bytes; one.Bytes > one.Bound {
				open = append(open, one)
			}
		}
		return open
	}
	if open := layOut(byBound, quickWork); c.Work == 0 && len(open) > 0 {
		// A search should place every buffer at least eight times.
		share := max(longerWork/int64(step.plan.Placement.Ranks)/int64(len(open)), quickWork)
		layOut(slices.DeleteFunc(open, func(one *alternative) bool { return 8*int64(one.other.Allocations) > share }), share)
	}
	for i := range list {
		list[i].Best = list[i].Bytes > 0 && !beaten(list, &list[i]) && !slices.ContainsFunc(list[:i], list[i].equals)
	}
	slices.SortStableFunc(list[1:], func(a, b alternative) int {
		return cmp.Or(cmp.Compare(a.Microbatches, b.Microbatches), -cmp.Compare(max(a.Bytes, a.Bound), max(b.Bytes, b.Bound)), cmp.Compare(a.Makespan, b.Makespan))
	})
	return list, nil
}

func beaten(list []alternative, one *alternative) bool {
	return slices.ContainsFunc(list, func(other alternative) bool { return other.beats(one) })
}

// simulateAlternative simulates an alternative. If it has more microbatches, each takes less time, in
// proportion to its tokens. The times of a hop and of an action that runs once per step do
// not change.
func (c *memPlanCmd) simulateAlternative(step *step, other *layout.Alternative) (alternative, error) {
	times := withStages(step.times, func(s *simulate.StageCosts) {
		if s.Recompute == 0 { // a stage that recomputes repeats its forward
			s.Recompute = s.F
		}
	})
	few, many := int64(step.plan.Microbatches), int64(other.Plan.Microbatches)
	times.Latency = times.Latency * many / few
	for i := range times.Stages {
		times.Stages[i].Quantize = times.Stages[i].Quantize * many / few
	}
	times.Links = slices.Clone(times.Links)
	for i := range times.Links {
		times.Links[i].Latency = times.Links[i].Latency * many / few
	}
	r, err := simulate.Run(other.Plan, times, other.Plan.Capacity)
	if err != nil {
		return alternative{}, err
	}
	return alternative{
		Name: other.Name, Bytes: other.Bytes, Bound: other.Bound, Microbatches: other.Plan.Microbatches,
		Makespan: times.Units(r.Makespan) * float64(few) / float64(many), other: other,
	}, nil
}

// refusal returns the error for a plan that does not fit its budget, with plans that fit and
// their times, or with the smallest alternative if none fits.
func (c *memPlanCmd) refusal(ctx context.Context, step *step, others []layout.Alternative, err error) error {
	refused := c.layoutError(err)
	list, err := c.whatIf(ctx, step, layout.Alternative{Name: "as it is", Bytes: 1 << 62, Plan: step.plan}, others)
	if err != nil || len(list) == 1 {
		return errors.Join(refused, err)
	}
	var b strings.Builder
	fits := slices.DeleteFunc(slices.Clone(list[1:]), func(one alternative) bool { return !one.Best || one.Bytes > int64(c.Memory) })
	if len(fits) == 0 {
		least := slices.MinFunc(list[1:], func(a, b alternative) int { return cmp.Compare(a.Bound, b.Bound) })
		fmt.Fprintf(&b, "weir: none of the alternatives fits; the smallest is %s, which needs at least %s bytes: use smaller microbatches, stages that recompute, or more ranks",
			least.Name, units.Count(least.Bound))
	} else {
		b.WriteString("weir: what would fit, of the same tokens:\n")
		alternativeTable(&b, fits, step.times.Unit)
	}
	found, _ := errors.AsType[faults](refused)
	return append(found, fault{Text: strings.TrimRight(b.String(), "\n")})
}

// alternativeTable prints bytes and times.
func alternativeTable(w io.Writer, list []alternative, unit string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "\tbytes of a rank\tmakespan"
	if unit != "" {
		head += ", " + unit
	}
	fmt.Fprintln(t, head)
	for _, one := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\n", one.Name, units.Count(one.Bytes), number(one.Makespan))
	}
	t.Flush()
	if list[len(list)-1].Microbatches != list[0].Microbatches {
		fmt.Fprintln(w, "the time of a smaller microbatch is its share of a larger one's")
	}
}

// whatIf prints the plan itself, the alternatives that no other one beats, and the number of the others.
func (o *certificates) whatIf(w io.Writer) {
	if len(o.WhatIf) == 0 {
		return
	}
	list := o.WhatIf[:1]
	for _, one := range o.WhatIf[1:] {
		if one.Best {
			list = append(list[:len(list):len(list)], one)
		}
	}
	fmt.Fprint(w, "\nWhat if, with the same tokens:\n")
	alternativeTable(w, list, o.unit)
	long := 0
	for _, one := range o.WhatIf {
		if low := one; one.Bytes == 0 {
			if low.Bytes = low.Bound; !beaten(o.WhatIf, &low) {
				long++
			}
		}
	}
	if n := len(o.WhatIf) - len(list) - long; n > 0 {
		fmt.Fprintf(w, "%d more need at least as much memory and time as one of these with the same number of microbatches; --json has them\n", n)
	}
	if long > 0 {
		fmt.Fprintf(w, "%d more have programs that are too long to lay out; --json has their bounds\n", long)
	}
}
