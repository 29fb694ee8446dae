package layout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/memory/planning"
)

var _ planning.Planner = (*Profile)(nil)

// searchNodes limits the search for the layout of a step that sets no limit.
const searchNodes = 200_000

// Plan lays out the memory of a step of a runner. The plan that it returns is a *Memory. If the shapes of
// the microbatches are given and a rank has so many allocations that their layout would take seconds, Plan
// lays out the envelope of these shapes instead, which repeats, unless they have none or it does not fit
// the budget.
func (t *Profile) Plan(ctx context.Context, step *planning.Step) (planning.Plan, error) {
	cfg := Config{
		LookAhead: step.LookAhead, Shapes: step.Shapes, Envelope: step.Shapes == nil, Replicas: step.Replicas,
		Budget: step.Budget, Search: searchOptions(step),
	}
	if step.Budget > 0 {
		cfg.Instead = Alternative{Rule: step.Rule, Params: step.Params, Profile: t, Passes: step.Passes}.Variants()
	}
	quick := cfg
	if step.Shapes != nil {
		quick.births = maxUnrolled
	}
	made, err := Make(ctx, step.Plan, t, quick)
	if step.Shapes != nil && errors.Is(err, ErrTooLong) {
		wide := cfg
		wide.Shapes, wide.Envelope, wide.Instead = nil, true, nil
		if made, err = Make(ctx, step.Plan, t.with(step.Shapes), wide); err != nil { // the classes have no envelope, or it exceeds the budget
			made, err = Make(ctx, step.Plan, t, cfg)
		}
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}

// with returns the profile with only the shape classes that occur.
func (t *Profile) with(shapes []int) *Profile {
	used := *t
	used.Shapes = nil
	for class := range t.Shapes {
		if slices.Contains(shapes, class) {
			used.Shapes = append(used.Shapes, t.Shapes[class])
		}
	}
	return &used
}

// searchOptions returns the limits of the search for the layout of a step.
func searchOptions(step *planning.Step) placement.Options {
	options := placement.Options{Nodes: step.Search.Nodes, Time: step.Search.Time}
	unequal := step.Shapes != nil && slices.Min(step.Shapes) != slices.Max(step.Shapes) // shapedWork limits the work
	if !unequal && step.Search == (planning.Search{}) {
		options.Nodes = searchNodes
	}
	return options
}

// Layouts returns the layouts of a rank's memory and of its far memory. The latter is nil if the rank
// offloads nothing.
func (p *Memory) Layouts(rank int) (near, far *memory.Layout) {
	r := &p.Ranks[rank]
	if r.Far != nil {
		far = r.Far.Layout
	}
	return r.Layout, far
}

// AppendParts appends, for each allocation of the source for an entry, the number of the part as which it is handed
// over, or -1. It appends nothing if the profile has no entry with exactly the wanted parts.
func (p *Memory) AppendParts(parts []int, microbatch int, wanted uint64) []int {
	e := p.profile.Shapes[p.shape(microbatch)].entry(wanted)
	if e == nil {
		return parts
	}
	for _, change := range e.Events {
		if change.Op == Alloc {
			parts = append(parts, slices.Index(e.Out, change.Ref))
		}
	}
	return parts
}

// Names returns the names and sizes of the first 16 buffers that are allocated at a place of a rank's
// layout, and the number of the others. It returns nil if the layout has no such place.
func (p *Memory) Names(rank, place int) (names []string) {
	const most = 16
	places := p.Ranks[rank].Layout.Places
	if place < 0 || place >= len(places)-1 {
		return nil
	}
	count := int(places[place+1] - places[place])
	for c := range p.All(rank) {
		if len(names) == min(count, most) {
			break
		}
		if c.Alloc && c.Place == place {
			names = append(names, fmt.Sprintf("%s (%d bytes)", p.Name(c), c.Bytes))
		}
	}
	if count > most {
		names = append(names, fmt.Sprintf("and %d more", count-most))
	}
	return names
}
