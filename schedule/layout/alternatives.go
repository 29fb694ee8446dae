package layout

import (
	"context"
	"fmt"
	mathbits "math/bits"
	"slices"
	"sync"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// Alternative is another plan for a step on the same tokens, for a plan that exceeds its budget.
// Weigh makes its plan, and LayOut lays it out.
type Alternative struct {
	Name    string // such as "at most 2 in flight on a rank (cap 2)"
	Changes int    // number of differences from the plan, 1 or more
	Rule    schedule.Rule
	Params  schedule.Params
	Passes  lower.Passes
	Profile *Profile

	Plan  *schedule.Plan
	Bound int64 // lower bound on Memory.Total: the largest sum of a rank's peak and its resident bytes
	// Allocations is the number of buffers to place on the rank with the most buffers. A
	// layout takes at least ten microseconds per buffer.
	Allocations int
	Bytes       int64 // Memory.Total of the lowest layout so far; 0 before the first layout

	cfg Config
}

// with returns an alternative with one more change.
func (a Alternative) with(name string) Alternative {
	if a.Name != "" {
		name = a.Name + ", " + name
	}
	a.Name, a.Changes = name, a.Changes+1
	return a
}

// Variants returns alternatives that may need less memory:
//   - fewer microbatches in flight: using the rule's cap if it has one, otherwise with depth-first;
//   - smaller microbatches, from a smaller shape class, and correspondingly more of them for the same
//     number of tokens. Classes smaller than a quarter of the largest are left out, because the cost per
//     token of such small microbatches is unknown and most of their memory does not depend on tokens;
//   - both together.
func (a Alternative) Variants() []Alternative {
	list := a.capped()
	largest := int64(0)
	for i := range a.Profile.Shapes {
		largest = max(largest, a.Profile.Shapes[i].tokens())
	}
	for i := range a.Profile.Shapes {
		shape := &a.Profile.Shapes[i]
		if tokens := shape.tokens(); tokens == largest || tokens < largest/minShare {
			continue
		}
		microbatches, replica := scale(a.Params.Microbatches, largest, shape.tokens()), ""
		if a.Passes.Reduce {
			replica = " in each replica,"
		}
		smaller := a.with(fmt.Sprintf("%d microbatches%s of shape class %q", microbatches, replica, shape.Name))
		smaller.Params.Microbatches = microbatches
		profile := *a.Profile
		profile.Shapes = profile.Shapes[i : i+1]
		smaller.Profile = &profile
		list = append(append(list, smaller), smaller.capped()...)
	}
	return list
}

// minShare limits the shape classes that Variants considers: the largest class may be at most minShare
// times as large.
const minShare = 4

// capped returns the alternatives with fewer microbatches in flight. Plans with more microbatches in
// flight take longer to lay out, so capped considers only a few of the large numbers.
func (a Alternative) capped() (list []Alternative) {
	most := a.Params.Cap - 1
	if a.Params.Cap == 0 {
		most = 2*a.Params.Placement.Ranks - 1
	}
	for inFlight := min(most, a.Params.Microbatches); inFlight >= 1; {
		name := fmt.Sprintf("at most %d in flight on a rank (cap %d)", inFlight, inFlight)
		params, rule := a.Params, a.Rule
		params.Cap = inFlight
		if _, err := rule(params); err != nil {
			rule, name = schedule.DepthFirst, "depth-first with "+name
			params.Group, params.Slices = 0, 0
		}
		fewer := a.with(name)
		fewer.Rule, fewer.Params = rule, params
		list = append(list, fewer)
		if inFlight > 8 {
			inFlight -= inFlight / 2
		} else {
			inFlight -= max(inFlight/3, 1)
		}
	}
	return list
}

// tokens returns the bytes that a source allocates for a microbatch of the class, which are
// proportional to its tokens. If the source allocates nothing, it returns the bytes of all
// buffers.
func (s *ShapeProfile) tokens() (bytes int64) {
	for i := range s.Entries {
		for _, b := range s.Entries[i].Buffers {
			bytes += b.Bytes
		}
	}
	if bytes > 0 {
		return bytes
	}
	for i := range s.Stages {
		for _, b := range s.Stages[i].Buffers {
			bytes += b.Bytes
		}
	}
	return max(bytes, 1)
}

// scale returns n * over / under, rounded up, but at most schedule.MaxMicrobatches + 1,
// which every rule refuses.
func scale(n int, over, under int64) int {
	const most = schedule.MaxMicrobatches + 1
	high, low := mathbits.Mul64(uint64(n), uint64(over))
	low, carry := mathbits.Add64(low, uint64(under)-1, 0)
	if high += carry; high >= uint64(under) {
		return most
	}
	quotient, _ := mathbits.Div64(high, low, uint64(under))
	return int(min(quotient, most))
}

// Weigh makes the plans of alternatives in parallel and computes their bounds, without layouts. It
// returns the alternatives whose plan can be made and fits their profile. It ignores Budget and Instead.
func Weigh(list []Alternative, cfg Config) (weighed []Alternative) {
	cfg.Budget, cfg.Instead = 0, nil
	list = slices.Clone(list)
	_ = eachRank(len(list), func(i int) error { // the function never returns an error
		a := &list[i]
		if plan, err := a.Rule(a.Params); err == nil {
			a.Plan, _ = lower.Prepare(plan, a.Passes) // nil if it fails
		}
		return nil
	})
	var traces sync.Pool // for their slices
	for _, a := range list {
		a.cfg = cfg
		if len(a.Profile.Shapes) == 1 {
			a.cfg.Shapes, a.cfg.Envelope = nil, false
		}
		if a.Plan != nil && a.weigh(&traces) == nil {
			weighed = append(weighed, a)
		}
	}
	return weighed
}

// weigh traces the programs of all ranks, and sets Bound and Allocations.
func (a *Alternative) weigh(traces *sync.Pool) error {
	p, err := prepare(a.Plan, a.Profile, a.cfg)
	if err != nil {
		return err
	}
	bounds, births := make([]int64, a.Plan.Placement.Ranks), make([]int, a.Plan.Placement.Ranks)
	err = eachRank(len(bounds), func(rank int) error {
		t := p.newTrace(rank, false)
		t.skips = p.cfg.Shapes == nil
		if last, ok := traces.Get().(*trace); ok {
			t.allocations, t.log, t.actions = last.allocations[:0], last.log[:0], last.actions[:0]
		}
		err := t.run()
		if err == nil {
			bounds[rank], births[rank] = t.peaks().bytes+p.cfg.resident(p.plan.Placement, rank), len(t.allocations)
		}
		traces.Put(&trace{allocations: t.allocations, log: t.log, actions: t.actions})
		return err
	})
	a.Bound, a.Allocations = slices.Max(bounds), slices.Max(births)
	return err
}

// LayOut lays out the alternative, which Weigh must have returned, with the given amount of work per rank.
// It sets Bytes if this layout is the first one or lower than the previous ones.
func (a *Alternative) LayOut(ctx context.Context, work int64) error {
	cfg := a.cfg
	cfg.Search.Nodes = work
	p, err := Make(ctx, a.Plan, a.Profile, cfg)
	if err != nil {
		return err
	}
	if total := p.Total(); a.Bytes == 0 || total < a.Bytes {
		a.Bytes = total
	}
	return nil
}
