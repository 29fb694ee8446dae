package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Search configures a search for the fastest configuration that fits. The number of sequences
// per step is fixed.
type Search struct {
	Model     *Model
	Pieces    *Pieces // in place of Model
	Setup     Setup   // the search varies its Microbatch, and with a Model its Recompute, unless they are fixed
	Ranks     int
	Sequences int   // per step and replica
	Memory    int64 // memory limit of a rank, including the allowance; 0 means no limit
	// Speed is the floating-point operations per second of a rank, Bandwidth the bytes per second
	// of a link.
	Speed, Bandwidth float64
	FarRate          float64 // bytes per second between a rank and its far memory, in each direction; 0 means no far memory
	Capacity         int
	FixedMicrobatch  bool      // take the Microbatch of Setup
	FixedRecompute   bool      // take the Recompute of Setup
	Only             []string  // names of the allowed schedules; nil allows all, and searched orders too
	Deadline         time.Time // no trial except the first starts after this time, and a layout that is not ready then is given up with its trial; zero means no deadline
}

// Option is a training configuration that fits.
type Option struct {
	Name       string         `json:"schedule"`
	Stages     int            `json:"stages"`
	Cut        []int          `json:"layers_by_stage"`
	Recompute  Recompute      `json:"recompute"`
	Offload    float64        `json:"offload,omitempty"`  // share of the saved bytes, on the stages that the plan offloads
	Far        int64          `json:"far_peak,omitempty"` // highest peak of far memory of all ranks
	Microbatch int            `json:"microbatch_size"`
	Seconds    float64        `json:"seconds"` // simulated duration of a step
	Peak       int64          `json:"peak"`    // highest peak of all ranks, allowance included
	Plan       *schedule.Plan `json:"-"`
}

// maxCut limits the ranks times the square of the layers, to which the time of a cut is proportional.
const maxCut = 1 << 25

// trial is a combination of stages, recompute and microbatch, before a schedule is chosen.
type trial struct {
	setup   Setup
	cut     []int
	stages  int
	costs   *simulate.Costs
	turn    int
	busiest int64 // time of the slowest stage in a step, times the stages of a rank
}

// Best returns the Pareto front of simulated time and peak, fastest first. It also returns how many
// combinations it has tried, and how many there are. Every option is checked and laid out. Errors about the
// arguments wrap ErrModel or ErrSetup. An empty front means that no option fits.
func Best(ctx context.Context, s Search) (front []Option, tried, all int, err error) {
	if s.Pieces != nil {
		if s.Setup, err = s.Pieces.Adapt(s.Setup); err != nil {
			return nil, 0, 0, err
		}
		s.Setup = s.Setup.withDefaults()
		err = s.Setup.Validate(s.Pieces.shape(&s.Setup))
	} else {
		s.Setup = s.Setup.withDefaults()
		err = errors.Join(s.Model.Validate(), s.Setup.Validate(s.Model))
	}
	if err != nil {
		return nil, 0, 0, err
	}
	if work := int64(s.Ranks) * int64(s.layers()) * int64(s.layers()); work > maxCut {
		return nil, 0, 0, diagnostic.Errorf(ErrSetup, "a search over %d layers on %d ranks takes too long, since their product with the layers is above %d: predict single schedules instead", s.layers(), s.Ranks, maxCut)
	}
	trials, err := s.trials()
	if err != nil {
		return nil, 0, 0, err
	}
	var options []Option
	limit := ctx // of a trial
	for i := range trials {
		if i > 0 && !s.Deadline.IsZero() && time.Now().After(s.Deadline) {
			break
		}
		found, err := s.choose(limit, &trials[i])
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			break
		}
		tried++
		if err != nil {
			return nil, tried, len(trials), err
		}
		if i == 0 && !s.Deadline.IsZero() {
			var cancel context.CancelFunc
			limit, cancel = context.WithDeadline(ctx, s.Deadline)
			defer cancel()
		}
		options = append(options, found...)
	}
	slices.SortStableFunc(options, func(a, b Option) int { return cmp.Or(cmp.Compare(a.Seconds, b.Seconds), cmp.Compare(a.Peak, b.Peak)) })
	return paretoFront(options, func(o Option) int64 { return o.Peak }), tried, len(trials), nil
}

// paretoFront returns the elements of a list, sorted by time, that need less memory than all before them.
func paretoFront[E any](list []E, peak func(E) int64) (front []E) {
	for _, e := range list {
		if n := len(front); n == 0 || peak(e) < peak(front[n-1]) {
			front = append(front, e)
		}
	}
	return front
}

// trials returns the combinations in the order in which they are tried: by the time of the slowest stage,
// alternating between the kinds of recompute, because perhaps only one kind fits.
func (s *Search) trials() (list []trial, err error) {
	kinds := []Recompute{{}, {Groups: []string{"norm", "activation"}}, {All: true}}
	switch {
	case s.Pieces != nil: // a profile already states what is recomputed
		kinds = kinds[:1]
	case s.FixedRecompute:
		kinds = []Recompute{s.Setup.Recompute}
	}
	sizes := []int{s.Setup.Microbatch}
	if !s.FixedMicrobatch {
		sizes = nil
		for size := 1; size <= 4*s.Setup.Microbatch && size <= s.Sequences; size *= 2 {
			sizes = append(sizes, size)
		}
	}
	for _, r := range kinds {
		begin := len(list)
		for each := 1; each <= 4 && each*s.Ranks <= s.layers()+2; each *= 2 {
			for _, size := range sizes {
				if s.Sequences%size != 0 {
					continue
				}
				t := trial{setup: s.Setup, stages: each * s.Ranks}
				t.setup.Recompute, t.setup.Microbatch = r, size
				if err := s.price(&t); err != nil {
					return nil, err
				}
				list = append(list, t)
			}
		}
		same := list[begin:]
		slices.SortStableFunc(same, func(a, b trial) int { return cmp.Compare(a.busiest, b.busiest) })
		for turn := range same {
			same[turn].turn = turn
		}
	}
	slices.SortStableFunc(list, func(a, b trial) int { return cmp.Or(a.turn-b.turn, cmp.Compare(a.busiest, b.busiest)) })
	return list, nil
}

func (s *Search) layers() int {
	if s.Pieces != nil {
		return s.Pieces.Layers()
	}
	return s.Model.Layers
}

// price cuts the layers into stages, unless the trial has a cut, and sets the costs of the stages.
func (s *Search) price(t *trial) (err error) {
	if s.Pieces != nil {
		if t.cut, err = s.Pieces.Cut(t.setup, nil, t.stages); err != nil {
			return err
		}
		t.costs = s.Pieces.Costs(t.setup, t.cut, s.Speed, s.Bandwidth, false)
		for i := range t.costs.Stages {
			c := &t.costs.Stages[i]
			c.Resident, c.Weights, c.Gradients, c.Optimizer = c.Weights+c.Gradients+c.Optimizer, 0, 0, 0
			t.busiest = max(t.busiest, int64(s.Sequences/t.setup.Microbatch)*(c.F+c.I+c.W)*int64(t.stages/s.Ranks))
		}
		return nil
	}
	parts := s.Model.Modules(t.setup.Further)
	each := make([]simulate.StageCosts, len(parts))
	v := s.Model.sizes(&t.setup)
	for i, p := range parts {
		if err := s.part(&each[i], p, &t.setup, v); err != nil {
			return err
		}
	}
	if t.cut == nil {
		t.cut = cutLayers(each, s.Model.Layers, t.stages)
	}
	hidden, err := Formula("e*s*b*h/q").bytes(v)
	if err != nil {
		return err
	}
	t.costs = &simulate.Costs{Unit: "ns", Latency: int64(1e9*float64(hidden)/s.Bandwidth) + 10_000, Stages: make([]simulate.StageCosts, t.stages)}
	for stage, parts := range s.Model.stages(t.cut, &t.setup) {
		c := &t.costs.Stages[stage]
		for _, one := range each[:len(parts)] {
			c.F, c.I, c.W = c.F+one.F, c.I+one.I, c.W+one.W
			c.Saved, c.FreedByI, c.Carry = c.Saved+one.Saved, c.FreedByI+one.FreedByI, c.Carry+one.Carry
			c.Resident += one.Resident
		}
		each = each[len(parts):]
		c.Output, c.Gradient = hidden, hidden
		t.busiest = max(t.busiest, int64(s.Sequences/t.setup.Microbatch)*(c.F+c.I+c.W)*int64(t.stages/s.Ranks))
	}
	return nil
}

// part sets the times and bytes of a module.
func (s *Search) part(c *simulate.StageCosts, p Module, setup *Setup, v Sizes) error {
	m := s.Model
	for _, tensor := range setup.layer(m, p, setup.Recompute).Tensors {
		switch {
		case tensor.Role == Input:
			tensor.Bytes = "e*s*b*h/q"
		case tensor.Role != Own || tensor.Class != memory.Saved && tensor.Class != memory.Carry:
			continue
		}
		bytes, err := tensor.Bytes.bytes(v)
		switch {
		case err != nil:
			return err
		case tensor.Class == memory.Carry:
			c.Carry += bytes
		case tensor.Born.Action == F:
			if c.Saved += bytes; tensor.Freed.Action == I {
				c.FreedByI += bytes
			}
		}
	}
	c.Resident = new(m.static(setup, [][]Module{{p}})).Total()

	tokens := float64(v['s'] * v['b'])
	products := 2 * tokens * float64(m.active(p, setup)) // operations of a forward
	seconds := func(operations float64) int64 { return int64(1e9 * operations / s.Speed) }
	if p.Kind == Embedding || p.Kind == Head {
		c.F, c.I, c.W = seconds(products), seconds(products), seconds(products)
		return nil
	}
	// Causal attention: half of all pairs of tokens, for queries and for values.
	scores := tokens * float64(v['S']) * float64(v['n']+v['o']) / float64(v['t'])
	c.F, c.I, c.W = seconds(products+scores), seconds(products+2.5*scores), seconds(products)
	if setup.Recompute.All {
		c.I += c.F
	}
	return nil
}

// active returns the number of matrix elements that a token is multiplied with on a rank.
func (m *Model) active(p Module, s *Setup) (n int64) {
	if p.Kind == Embedding {
		return 0
	}
	tensor := int64(s.Tensor)
	for _, w := range m.Weights(p, m.padded(s.Tensor)) {
		switch w.Split {
		case ByTensor:
			n += w.Elements / tensor
		case ByExpert:
			n += w.Elements / int64(m.Experts) * int64(m.TopK) / tensor
		}
	}
	if p.Kind == Head && m.Tied || p.Kind == Further {
		n += int64(m.padded(s.Tensor)) * int64(m.Hidden) / tensor
	}
	return n
}

// cutLayers divides the layers among the stages so that the slowest stage is as fast as possible, by
// dynamic programming over the layers. Among equal cuts, it takes the one with the smallest sum of squares.
func cutLayers(parts []simulate.StageCosts, layers, stages int) []int {
	sum := make([]float64, len(parts)+1) // the sum of the times of the parts before each part
	for i, c := range parts {
		sum[i+1] = sum[i] + float64(c.F+c.I+c.W)
	}
	// best is the best cut of the layers before index to into the stages up to this one. Its last stage begins at
	// layer from. longest is infinite if there is no cut.
	type best struct {
		longest, squares float64
		from             int
	}
	table := make([][]best, stages)
	for stage := range table {
		table[stage] = make([]best, layers+1)
		for to := range layers + 1 {
			least := best{longest: math.Inf(1)}
			for from := range to + 1 {
				first, last := stage == 0, stage == stages-1
				if first && from > 0 || from == to && !first && !last {
					continue // Only the first and the last stage may have no layer.
				}
				var before best
				begin, end := from+1, to+1
				if first { // It also has the embedding.
					begin = 0
				} else {
					before = table[stage-1][from]
				}
				if last { // It also has all modules after the layers.
					end = len(parts)
				}
				length := sum[end] - sum[begin]
				one := best{max(before.longest, length), before.squares + length*length, from}
				if cmp.Or(cmp.Compare(one.longest, least.longest), cmp.Compare(one.squares, least.squares)) < 0 {
					least = one
				}
			}
			table[stage][to] = least
		}
	}
	cut := make([]int, stages)
	for stage, to := stages-1, layers; stage >= 0; stage-- {
		from := table[stage][to].from
		cut[stage], to = to-from, from
	}
	return cut
}

// choose returns the options of a trial. With far memory it also tries to offload half and all of
// the saved bytes.
func (s *Search) choose(ctx context.Context, t *trial) (options []Option, err error) {
	request := choose.Request{Ranks: s.Ranks, Stages: t.stages, Microbatches: s.Sequences / t.setup.Microbatch, Costs: t.costs, Capacity: s.Capacity}
	if s.Memory > 0 {
		request.Memory = max(s.Memory-s.Setup.Allowance, 1)
	}
	shares, place := []float64{0}, schedule.Looped(s.Ranks, t.stages)
	var profile *layout.Profile
	if s.FarRate != 0 {
		shares = append(shares, 0.5, 1)
		if profile, err = s.Model.profile(&t.setup, s.Model.stages(t.cut, &t.setup)); err != nil {
			return nil, err
		}
	}
	for _, share := range shares {
		if share > 0 {
			request.Far, request.Costs = math.MaxInt64, s.offloaded(t.costs, &profile.Shapes[0], profile.OffloadSlots(&place, share))
		}
		found, err := s.options(ctx, t, &request, share, profile)
		if err != nil {
			return nil, err
		}
		options = append(options, found...)
	}
	return options, nil
}

// offloaded returns the costs with the link to far memory and the bytes of the slots that are
// offloaded.
func (s *Search) offloaded(from *simulate.Costs, shape *layout.ShapeProfile, away []uint64) *simulate.Costs {
	costs := *from
	costs.FarLatency, costs.FarPerMiB = 10_000, int64(math.Ceil(1e9*(1<<20)/s.FarRate))
	costs.Stages = slices.Clone(costs.Stages)
	for stage, set := range away {
		c, one := &costs.Stages[stage], &shape.Stages[stage]
		for n, ref := range one.Slots {
			switch {
			case set>>n&1 == 0:
			case ref.Kind == layout.In:
				c.Offloaded += c.Output
			default:
				c.Offloaded += one.Buffers[ref.Index].Bytes
			}
		}
		c.Offloaded = min(c.Offloaded, c.Saved)
	}
	return &costs
}

// slotsOf replaces the slots in a plan of choose.Choose, which names slot 0 for every stage that it offloads,
// with the slots of a profile. It returns nil if an offloaded stage has no slots.
func slotsOf(plan schedule.Plan, profile *layout.Profile, share float64) *schedule.Plan {
	away := profile.OffloadSlots(&plan.Placement, share)
	for stage, set := range plan.OffloadSlots {
		if set == 0 {
			away[stage] = 0
		} else if away[stage] == 0 {
			return nil
		}
	}
	plan.OffloadSlots = away
	return &plan
}

// options lays out the plans on the Pareto front of choose.Choose, of the schedules in s.Only, and returns those
// that fit. The plans offload the given share of the saved bytes of a profile, or nothing if the share is 0.
func (s *Search) options(ctx context.Context, t *trial, r *choose.Request, share float64, profile *layout.Profile) (options []Option, err error) {
	choice, err := choose.Choose(*r)
	if err != nil && !errors.Is(err, choose.ErrNone) {
		return nil, err
	}
	candidates := choice.Front
	if s.Only != nil {
		candidates = paretoFront(slices.DeleteFunc(choice.All, func(c *choose.Candidate) bool {
			return !c.Fits || !slices.Contains(s.Only, c.Schedule) || c.Offloads() != (share > 0)
		}), func(c *choose.Candidate) int64 { return c.Peak })
	}
	for _, c := range candidates {
		if c.Offloads() != (share > 0) {
			continue
		}
		plan := c.Plan
		if share > 0 {
			if plan = slotsOf(*plan, profile, share); plan == nil {
				continue
			}
		}
		out, err := Predict(ctx, Request{
			Model: s.Model, Pieces: s.Pieces, Setup: t.setup, Plan: plan, Cut: t.cut, Capacity: s.Capacity,
		})
		if errors.Is(err, layout.ErrTooLong) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
		o := Option{Name: c.Name(), Stages: t.stages, Cut: t.cut, Recompute: t.setup.Recompute, Microbatch: t.setup.Microbatch, Offload: share, Seconds: float64(c.Report.Makespan) / 1e9, Plan: plan}
		for i := range out.Ranks {
			o.Peak, o.Far = max(o.Peak, out.Ranks[i].Total()), max(o.Far, out.Ranks[i].Far)
		}
		if s.Memory == 0 || o.Peak <= s.Memory {
			options = append(options, o)
		}
	}
	return options, nil
}
