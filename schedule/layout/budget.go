package layout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// Alternative is another way to run a step, for a plan that does not fit its budget.
type Alternative struct {
	Name string // such as "at most 2 microbatches in flight"
	// Make returns the plan and its templates. An error means that there is none.
	Make func() (*schedule.Plan, *Templates, error)
}

// Alternatives returns what may need less memory than the plan that a rule makes:
// fewer microbatches in flight where the rule takes a cap, else by depth-first, and each
// of the shape classes that is smaller than the first. Ready puts a plan through the
// passes that make it one to be run.
func Alternatives(rule schedule.Rule, params schedule.Params, templates *Templates, ready func(*schedule.Plan) (*schedule.Plan, error)) []Alternative {
	var list []Alternative
	make := func(rule schedule.Rule, params schedule.Params, t *Templates) func() (*schedule.Plan, *Templates, error) {
		return func() (*schedule.Plan, *Templates, error) {
			plan, err := rule(params)
			if err == nil {
				plan, err = ready(plan)
			}
			return plan, t, err
		}
	}
	most := params.Cap - 1
	if params.Cap == 0 {
		most = 2*params.Placement.Ranks - 1
	}
	for inFlight := min(most, params.Microbatches); inFlight >= 1; inFlight-- {
		capped := params
		capped.Cap = inFlight
		name := fmt.Sprintf("at most %d in flight on a rank (cap %d)", inFlight, inFlight)
		with := rule
		if _, err := rule(capped); err != nil {
			with = schedule.DepthFirst
			capped.Group, capped.Slices = 0, 0
			name = fmt.Sprintf("depth-first with at most %d in flight on a rank (cap %d)", inFlight, inFlight)
		}
		list = append(list, Alternative{name, make(with, capped, templates)})
	}
	for i := range templates.Shapes {
		if i > 0 && size(&templates.Shapes[i]) < size(&templates.Shapes[0]) {
			smaller := *templates
			smaller.Shapes = templates.Shapes[i : i+1]
			list = append(list, Alternative{fmt.Sprintf("as many microbatches, all of shape class %q", templates.Shapes[i].Name), make(rule, params, &smaller)})
		}
	}
	return list
}

// size returns the bytes of all buffers of a shape class.
func size(s *Shape) (bytes int64) {
	for i := range s.Stages {
		for _, b := range s.Stages[i].Buffers {
			bytes += b.Bytes
		}
	}
	return bytes
}

// Tried is what an alternative needs.
type Tried struct {
	Name  string
	Bytes int64 // on the rank that needs most
	Plan  *schedule.Plan
}

// Try lays out the alternatives that there are. Those that cannot be made are left out.
func Try(ctx context.Context, list []Alternative, cfg Config) (tried []Tried) {
	cfg.Budget, cfg.Instead = 0, nil
	for _, one := range list {
		plan, templates, err := one.Make()
		if err != nil {
			continue
		}
		with := cfg
		if len(templates.Shapes) == 1 {
			with.Shapes, with.Envelope = nil, false
		}
		p, err := Make(ctx, plan, templates, with)
		if err != nil {
			continue
		}
		tried = append(tried, Tried{one.Name, p.Height(), plan})
	}
	return tried
}

// Height returns the bytes of a step on the rank that needs most.
func (p *Plan) Height() (most int64) {
	for i := range p.Ranks {
		most = max(most, p.Ranks[i].Height)
	}
	return most
}

// refuse returns an error where a rank needs more than the budget: the owners at the
// peak, and what would fit.
func (p *Plan) refuse(ctx context.Context) error {
	var faults []error
	for i := range p.Ranks {
		if r := &p.Ranks[i]; p.cfg.Budget > 0 && r.Height > p.cfg.Budget {
			faults = append(faults, fmt.Errorf("%w: rank %d needs %d bytes for a step, %d more than the %d that it has; alive at the peak: %s",
				ErrBudget, i, r.Height, r.Height-p.cfg.Budget, p.cfg.Budget, r.Peak))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	tried := Try(ctx, p.cfg.Instead, p.cfg)
	slices.SortStableFunc(tried, func(a, b Tried) int { return int(min(max(b.Bytes-a.Bytes, -1), 1)) })
	var fits []string
	for _, t := range tried {
		if t.Bytes <= p.cfg.Budget {
			fits = append(fits, fmt.Sprintf("%s (%d bytes)", t.Name, t.Bytes))
		}
	}
	switch {
	case len(fits) > 0:
		faults = append(faults, fmt.Errorf("%w: what would fit: %s", ErrBudget, strings.Join(fits, "; ")))
	case len(tried) > 0:
		least := tried[len(tried)-1]
		faults = append(faults, fmt.Errorf("%w: nothing that was tried fits; the least is %s, which needs %d bytes: use smaller microbatches, stages that recompute, or more ranks",
			ErrBudget, least.Name, least.Bytes))
	}
	return errors.Join(faults...)
}

// String lists the owners at the peak, the largest of them by name.
func (p Peak) String() string {
	const most = 6
	var b strings.Builder
	for i, o := range p.Owners {
		if i == most {
			var rest int64
			for _, o := range p.Owners[most:] {
				rest += o.Bytes
			}
			fmt.Fprintf(&b, ", and %d bytes of %d others", rest, len(p.Owners)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(o.String())
	}
	return b.String()
}

// String says whose the bytes are, and how many.
func (o Owner) String() string {
	text := fmt.Sprintf("%s (%v) %d bytes", o.Name, o.Class, o.Bytes)
	switch {
	case o.First < 0:
		return text
	case o.First == o.Last:
		return fmt.Sprintf("%s of microbatch %d", text, o.First)
	}
	return fmt.Sprintf("%s of %d microbatches (%d to %d)", text, o.Count, o.First, o.Last)
}
