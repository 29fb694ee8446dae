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

// Alternative is another way to run a step, with the same tokens, for a plan that does not
// fit its budget.
type Alternative struct {
	Name    string // such as "at most 2 in flight on a rank (cap 2)"
	Changes int    // how many things are other than in the plan, 1 or more
	// Make returns the plan and its profile. An error means that there is none. It is called
	// from several goroutines at once with those of other alternatives.
	Make func() (*schedule.Plan, *Profile, error)
}

// Alternatives returns what may need less memory than the plan that a rule makes:
//   - fewer microbatches in flight, where the rule takes a cap, else by depth-first;
//   - smaller microbatches, of a shape class that is smaller than the largest, and so many
//     more of them as have the same tokens. Classes of less than a quarter of the largest
//     are left out: how much slower a token is in such small ones nobody knows, and what
//     does not depend on tokens is most of what they need;
//   - both together.
//
// Each is prepared with the passes.
func Alternatives(rule schedule.Rule, params schedule.Params, profile *Profile, passes lower.Passes) []Alternative {
	list := capped(rule, params, profile, passes)
	largest := int64(0)
	for i := range profile.Shapes {
		largest = max(largest, profile.Shapes[i].tokens())
	}
	for i := range profile.Shapes {
		shape := &profile.Shapes[i]
		if tokens := shape.tokens(); tokens == largest || tokens < largest/leastShare {
			continue
		}
		one, more := *profile, params
		one.Shapes = profile.Shapes[i : i+1]
		more.Microbatches = scale(params.Microbatches, largest, shape.tokens())
		name := fmt.Sprintf("%d microbatches of shape class %q", more.Microbatches, shape.Name)
		list = append(list, Alternative{name, 1, maker(rule, more, &one, passes)})
		for _, c := range capped(rule, more, &one, passes) {
			list = append(list, Alternative{name + ", " + c.Name, 2, c.Make})
		}
	}
	return list
}

// leastShare is how small a microbatch is at most that is an alternative: such a part of the
// largest one.
const leastShare = 4

// capped returns the alternatives with fewer microbatches in flight: each number where
// there are few, some where there are many.
func capped(rule schedule.Rule, params schedule.Params, t *Profile, passes lower.Passes) (list []Alternative) {
	most := params.Cap - 1
	if params.Cap == 0 {
		most = 2*params.Placement.Ranks - 1
	}
	for inFlight := min(most, params.Microbatches); inFlight >= 1; inFlight -= fewer(inFlight) {
		capped := params
		capped.Cap = inFlight
		name := fmt.Sprintf("at most %d in flight on a rank (cap %d)", inFlight, inFlight)
		with := rule
		if _, err := rule(capped); err != nil {
			with = schedule.DepthFirst
			capped.Group, capped.Slices = 0, 0
			name = "depth-first with " + name
		}
		list = append(list, Alternative{name, 1, maker(with, capped, t, passes)})
	}
	return list
}

// fewer is how many fewer are in flight in the next alternative: the more there are, the
// longer it takes to make a plan of them.
func fewer(inFlight int) int {
	if inFlight > 8 {
		return inFlight / 2
	}
	return max(inFlight/3, 1)
}

// maker returns what makes a plan ready to be run.
func maker(rule schedule.Rule, params schedule.Params, t *Profile, passes lower.Passes) func() (*schedule.Plan, *Profile, error) {
	return func() (*schedule.Plan, *Profile, error) {
		plan, err := rule(params)
		if err == nil {
			plan, err = lower.Prepare(plan, passes)
		}
		return plan, t, err
	}
}

// tokens returns the bytes of what a source allocates for a microbatch of the class, which
// are in proportion to its tokens; where it allocates nothing, those of all buffers.
func (s *Shape) tokens() (bytes int64) {
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

// scale returns n * over / under, rounded up; at most schedule.MaxMicrobatches + 1, which
// every rule refuses.
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

// Tried is what an alternative needs, on the rank that needs most, with what is resident.
type Tried struct {
	Name  string
	Bytes int64 // of the layout that was found, 0 where nobody has looked for one
	Bound int64 // no layout is lower
	// Allocations is how much a rank allocates in what has to be laid out, at most: a layout takes
	// ten microseconds for each, or more.
	Allocations int
	Plan        *schedule.Plan

	profile *Profile
	cfg     Config
}

// Weigh finds out the bounds of alternatives, without a layout. Those that cannot be made
// are left out. Several of them are made at once.
func Weigh(list []Alternative, cfg Config) (tried []Tried) {
	cfg.Budget, cfg.Instead = 0, nil
	all, made := make([]Tried, len(list)), make([]bool, len(list))
	_ = eachRank(len(list), func(i int) error { // There are no errors.
		plan, profile, err := list[i].Make()
		if made[i] = err == nil; !made[i] {
			return nil
		}
		all[i] = Tried{Name: list[i].Name, Plan: plan, profile: profile, cfg: cfg}
		if len(profile.Shapes) == 1 {
			all[i].cfg.Shapes, all[i].cfg.Envelope = nil, false
		}
		return nil
	})
	var used sync.Pool // of players: their memory
	for i := range all {
		if made[i] && all[i].weigh(&used) == nil {
			tried = append(tried, all[i])
		}
	}
	return tried
}

// weigh plays every rank.
func (t *Tried) weigh(used *sync.Pool) error {
	p, err := prepare(t.Plan, t.profile, t.cfg)
	if err != nil {
		return err
	}
	bounds, births := make([]int64, t.Plan.Placement.Ranks), make([]int, t.Plan.Placement.Ranks)
	ports := newPorts(t.Plan, p.profile)
	err = eachRank(len(bounds), func(rank int) error {
		played := newPlayer(p.plan, p.profile, ports, rank, &p.cfg)
		if p.cfg.Shapes == nil {
			played.skip = &skipper{}
		}
		if last, ok := used.Get().(*player); ok {
			played.items, played.log, played.visits = last.items[:0], last.log[:0], last.visits[:0]
		}
		err := played.play()
		if err == nil {
			bounds[rank], births[rank] = played.most()+p.cfg.resident(p.plan.Placement, rank), len(played.items)
		}
		used.Put(&player{items: played.items, log: played.log, visits: played.visits})
		return err
	})
	t.Bound, t.Allocations = slices.Max(bounds), slices.Max(births)
	return err
}

// LayOut looks for a layout with so much work on each rank, and for none lower than one that
// is known already.
func (t *Tried) LayOut(ctx context.Context, work int64) error {
	cfg := t.cfg
	cfg.Search.Nodes = work
	p, err := Make(ctx, t.Plan, t.profile, cfg)
	if err != nil {
		return err
	}
	if total := p.Total(); t.Bytes == 0 || total < t.Bytes {
		t.Bytes = total
	}
	return nil
}
