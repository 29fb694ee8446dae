package timing

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/weir-ml/weir/cmd/weir/internal/traces"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

// ErrRun is wrapped by errors about traces that do not cover all ranks of a pipeline consistently.
var ErrRun = errors.New("the traces do not fit together")

// event is a measured computation or transfer.
type event struct {
	action     schedule.Action
	rank       int
	start, end int64
	joined     bool // it ran jointly with the previous event
	// For a computation, input is the computation on the adjacent stage that produces its input, taker
	// is the one that consumes its output, and send and receive transfer its input. Any of them is nil
	// if it is missing from the step. For a transfer, all are nil.
	input, taker, send, receive *event
}

// step holds the events of one step, by rank, in order of their start times.
type step [][]event

// measurement holds the measured steps of one pipeline.
type measurement struct {
	plan   *schedule.Plan // the order measured in the last step
	traces []*traces.Trace
	steps  []step
	hosts  []Clock
	absent []int // ranks of other pipelines of the job for which there is no trace
}

// newRun sorts the traces of a pipeline by rank and cuts them into steps. The plan of the request
// may be nil.
func newRun(r *Request) (*measurement, error) {
	u := &measurement{}
	for _, t := range r.Traces {
		if t.Launches != nil {
			return nil, launchError(t)
		}
	}
	all, err := staged(r)
	if err != nil {
		return nil, err
	}
	placement, err := u.place(all, r)
	if err != nil {
		return nil, err
	}
	if err := u.match(); err != nil {
		return nil, err
	}
	for _, one := range u.steps {
		one.link(placement)
	}
	last := u.steps[len(u.steps)-1]
	u.plan = last.drawing(placement).Plan
	actions := 0
	for _, events := range last {
		actions += len(events)
	}
	if stages := placement.Stages(); u.plan.Microbatches > 4*actions/stages { // With two copies of the model, each stage runs half of the microbatches.
		return nil, diagnostic.Errorf(ErrRun, "the traces have %s and microbatch %d, but a step has only %s: every stage must run every microbatch, starting at 0", units.Number(stages, "stage"), u.plan.Microbatches-1, units.Number(actions, "action"))
	}
	return u, nil
}

// launchError describes a trace whose spans time the launches of computations.
func launchError(t *traces.Trace) error {
	remedy := "record with a profiler that annotates the device (gpu_user_annotation), or call torch.accelerator.synchronize() at the end of every action and record ProfilerActivity.CPU alone"
	if t.Annotated {
		remedy = "torch.profiler annotates only what the thread of the action launches: record steps in torch.autograd.set_multithreading_enabled(False), so that this thread launches the backwards too"
	}
	return diagnostic.Errorf(ErrRun, "in %s only the host has annotations of %v, while kernels run on a device: their spans time launches, not the work; %s", t.File, t.Launches, remedy)
}

// staged returns the traces with a stage in every span. The stages missing from a trace are derived
// from the order of the plan. Without a plan, each rank is assumed to have one stage.
func staged(r *Request) ([]*traces.Trace, error) {
	unknown := func(s traces.Span) bool { return s.Stage < 0 }
	ranks := len(r.Traces)
	if r.Plan != nil {
		ranks = r.Plan.Placement.Ranks
	}
	if ranks > schedule.MaxStages {
		return nil, diagnostic.Errorf(ErrRun, "there are %d ranks, but at most %d stages are allowed", ranks, schedule.MaxStages)
	}
	var all []*traces.Trace
	for i, t := range r.Traces {
		if !slices.ContainsFunc(t.Spans, unknown) {
			all = append(all, t)
			continue
		}
		if len(r.Traces)%ranks != 0 {
			return nil, diagnostic.Errorf(ErrRun, "the plan has %d ranks, but there are traces of %d", ranks, len(r.Traces))
		}
		own := *t
		own.Spans = slices.Clone(t.Spans)
		place := i / (len(r.Traces) / ranks)
		order := map[schedule.Kind][]schedule.Action{}
		if r.Plan != nil {
			for a := range r.Plan.All(place) {
				order[a.Kind()] = append(order[a.Kind()], a)
			}
		}
		seen := map[schedule.Kind]int{}
		for j := range own.Spans {
			s := &own.Spans[j]
			s.Stage = place
			if list := order[s.Kind]; len(list) > 0 {
				a := list[seen[s.Kind]%len(list)]
				s.Stage, s.Microbatch = a.Stage(), a.Microbatch()
			}
			seen[s.Kind]++
		}
		all = append(all, &own)
	}
	return all, nil
}

// stages returns the stages that a trace computes.
func stages(t *traces.Trace) []int {
	set := map[int]bool{}
	for _, s := range t.Spans {
		if s.Kind.Compute() {
			set[s.Stage] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// place finds the ranks of the requested pipeline. Traces with the same stages belong to parallel
// pipelines, in the order of the ranks.
func (u *measurement) place(all []*traces.Trace, r *Request) (p schedule.Placement, err error) {
	type group struct {
		stages []int
		traces []*traces.Trace
	}
	var groups []group // sorted by stages
	for _, t := range all {
		on := stages(t)
		i, known := slices.BinarySearchFunc(groups, on, func(g group, on []int) int { return slices.Compare(g.stages, on) })
		switch {
		case len(on) == 0:
			continue
		case !known:
			groups = slices.Insert(groups, i, group{stages: on})
		}
		groups[i].traces = append(groups[i].traces, t)
	}
	if len(groups) == 0 {
		return p, diagnostic.Errorf(ErrRun, "there are transfers but no computations")
	}
	p.Ranks = len(groups)
	if err := u.complete(p.Ranks, r); err != nil {
		return p, err
	}
	rank := map[int]int{} // by stage
	for place, g := range groups {
		if len(g.traces) != len(groups[0].traces) {
			return p, diagnostic.Errorf(ErrRun, "%d traces have the stages %v, but %d have %v: give the traces of all ranks", len(groups[0].traces), groups[0].stages, len(g.traces), g.stages)
		}
		if r.Pipeline < 0 || r.Pipeline >= len(g.traces) {
			return p, diagnostic.Errorf(ErrRun, "there is no pipeline %d: there are %d parallel pipelines, from 0", r.Pipeline, len(g.traces))
		}
		t := g.traces[r.Pipeline]
		for _, stage := range g.stages {
			if other, taken := rank[stage]; taken {
				return p, diagnostic.Errorf(ErrRun, "stage %d is in both %s and %s", stage, u.traces[other].File, t.File)
			}
			rank[stage] = place
		}
		u.traces = append(u.traces, t)
	}
	for stage := range len(rank) {
		place, there := rank[stage]
		if !there {
			return p, diagnostic.Errorf(ErrRun, "no trace has stage %d: give the traces of all ranks", stage)
		}
		p.Rank = append(p.Rank, place)
	}
	if r.Plan == nil {
		return p, nil
	}
	return u.matchPlan(p, r.Plan)
}

// complete records which ranks of the job have no trace. It returns an error if the traces cannot
// cover whole pipelines.
func (u *measurement) complete(places int, r *Request) error {
	world, planned := 0, places
	for _, t := range r.Traces {
		world = max(world, t.WorldSize)
	}
	if r.Plan != nil {
		planned = r.Plan.Placement.Ranks
		world = max(world, planned)
	}
	for rank := range world {
		if _, found := slices.BinarySearchFunc(r.Traces, rank, func(t *traces.Trace, rank int) int { return t.Rank - rank }); !found {
			u.absent = append(u.absent, rank)
		}
	}
	if len(u.absent) > 0 && (world%places != 0 || places < planned) {
		return diagnostic.Errorf(ErrRun, "the job has %d ranks, but the traces cover the stages of only %d; traces of %s are missing: give the traces of all ranks of a pipeline", world, places, units.Ranks(u.absent))
	}
	return nil
}

// matchPlan reorders the ranks so that they match a plan.
func (u *measurement) matchPlan(p schedule.Placement, plan *schedule.Plan) (schedule.Placement, error) {
	want := plan.Placement
	if want.Ranks != p.Ranks || want.Stages() != p.Stages() {
		return p, diagnostic.Errorf(ErrRun, "the plan has %d ranks and %d stages, but the traces have %d and %d", want.Ranks, want.Stages(), p.Ranks, p.Stages())
	}
	own := slices.Clone(u.traces)
	for stage, place := range want.Rank {
		u.traces[place] = own[p.Rank[stage]]
	}
	for place, t := range u.traces {
		if !slices.Equal(stages(t), want.On(place)) {
			return p, diagnostic.Errorf(ErrRun, "%s has the stages %v, but no rank of the plan has these stages", t.File, stages(t))
		}
	}
	return want, nil
}

const maxSteps = 1 << 12

// match finds the steps that are complete on every rank. If all ranks have the same number of
// steps and the beginning of the first one, steps match by number; otherwise each step of rank 0
// matches the steps that overlap it most in time.
func (u *measurement) match() error {
	var steps [][][]event // by rank and step
	whole := make([]int, len(u.traces))
	same := true
	for rank, t := range u.traces {
		first := begin(t.Spans)
		steps = append(steps, cut(t.Spans[first:], rank))
		same = same && first == 0 && len(steps[rank]) == len(steps[0])
		if len(steps[rank]) > maxSteps {
			return diagnostic.Errorf(ErrRun, "%s has %d steps, but the limit is %d: record fewer", t.File, len(steps[rank]), maxSteps)
		}
		for _, s := range steps[rank] {
			whole[rank] = max(whole[rank], len(s))
		}
	}
	for n, mine := range steps[0] {
		var one step
		for rank, list := range steps {
			at, most := -1, int64(0)
			if same {
				at, list = n, nil
			}
			for i, s := range list {
				if overlap := min(mine[len(mine)-1].end, s[len(s)-1].end) - max(mine[0].start, s[0].start); overlap > most {
					at, most = i, overlap
				}
			}
			if at >= 0 && len(steps[rank][at]) == whole[rank] {
				one = append(one, slices.Clone(steps[rank][at])) // Several steps of rank 0 may overlap it.
			}
		}
		if len(one) == len(steps) {
			u.steps = append(u.steps, one)
		}
	}
	if len(u.steps) == 0 {
		return diagnostic.Errorf(ErrRun, "no step is complete in all traces: record the same steps on every rank, from beginning to end")
	}
	return nil
}

// begin returns the index of the first span of the first step whose beginning was recorded, or 0 if
// there is none. A stage's forward of its lowest microbatch begins such a step if, from there on, every
// backward of the step comes after its own forward.
func begin(spans []traces.Span) int {
	least := map[int]int{} // the lowest microbatch by stage
	for _, s := range spans {
		if old, known := least[s.Stage]; s.Kind == schedule.F && (!known || s.Microbatch < old) {
			least[s.Stage] = s.Microbatch
		}
	}
	for i := 0; i < len(spans); i++ {
		if s := spans[i]; s.Kind != schedule.F || s.Microbatch != least[s.Stage] {
			continue
		}
		open := openBackward(spans[i:])
		if open < 0 {
			for i > 0 && spans[i-1].Kind == schedule.RecvF {
				i--
			}
			return i
		}
		i += open // A step that began before this backward would also lack its forward.
	}
	return 0
}

// openBackward returns the index of the first step's first backward that no forward precedes, or -1
// if there is none.
func openBackward(spans []traces.Span) int {
	seen := map[schedule.Action]bool{}
	for i, s := range spans {
		a := schedule.NewAction(s.Kind, s.Stage, s.Microbatch)
		if seen[a] {
			break
		}
		seen[a] = true
		if s.Kind.Compute() && s.Kind != schedule.F && !seen[schedule.NewAction(schedule.F, s.Stage, s.Microbatch)] {
			return i
		}
	}
	return -1
}

// cut cuts the spans of a rank into steps. A step begins at the first action that the previous step
// already contains.
func cut(spans []traces.Span, rank int) (all [][]event) {
	seen := map[schedule.Action]bool{}
	for _, s := range spans {
		a := schedule.NewAction(s.Kind, s.Stage, s.Microbatch)
		if len(all) == 0 || seen[a] {
			seen = map[schedule.Action]bool{} // Clearing the map would cost as much as the longest step.
			all = append(all, nil)
		}
		seen[a] = true
		now := &all[len(all)-1]
		e := event{action: a, rank: rank, start: s.Start, end: s.End}
		if n := len(*now); n > 0 && s.End > s.Start {
			last := &(*now)[n-1]
			e.joined = s.Kind.Compute() && last.action.Kind().Compute() && !last.joined && last.start == e.start && last.end == e.end
		}
		*now = append(*now, e)
	}
	return all
}

// drawing returns the computations of a step, with times that start at 0, and their order as a
// plan.
func (s step) drawing(p schedule.Placement) *draw.Step {
	plan := &schedule.Plan{Name: "the order of the run", Placement: p, Runtime: schedule.PyTorch, Mode: schedule.ForwardOnly}
	d := &draw.Step{Plan: plan, Unit: "ms", Scale: 1e6}
	first := int64(math.MaxInt64)
	for _, events := range s {
		first = min(first, events[0].start)
	}
	for rank, events := range s {
		var list []simulate.TimedAction
		for _, e := range events {
			if !e.action.Kind().Compute() {
				continue
			}
			if e.joined {
				before := &list[len(list)-1]
				before.Action = before.Action.WithJoin(true)
			}
			list = append(list, simulate.TimedAction{Rank: rank, Position: int64(len(list)), Action: e.action, Start: e.start - first, End: e.end - first})
			plan.Microbatches = max(plan.Microbatches, e.action.Microbatch()+1)
			if e.action.Kind() != schedule.F {
				plan.Mode = schedule.Training
			}
		}
		var body []schedule.Action
		for _, e := range list {
			body = append(body, e.Action)
		}
		plan.Programs = append(plan.Programs, []schedule.Segment{{Body: body, Repeat: 1}})
		d.Events = append(d.Events, list)
	}
	return d
}

// link sets the computation and transfers that each computation depends on, and the computation that takes its output.
func (s step) link(p schedule.Placement) {
	of := map[schedule.Action]*event{}
	for _, events := range s {
		for i := range events {
			of[events[i].action] = &events[i]
		}
	}
	for _, events := range s {
		for i := range events {
			e := &events[i]
			kind, stage := e.action.Kind(), e.action.Stage()
			if !kind.Compute() || kind == schedule.W {
				continue
			}
			before, after, begins, ends := stage-1, stage+1, p.First(stage), p.Last(stage)
			computes, send, receive := []schedule.Kind{schedule.F}, schedule.SendF, schedule.RecvF
			if kind != schedule.F {
				before, after, begins, ends = after, before, ends, begins
				computes, send, receive = []schedule.Kind{schedule.B, schedule.I}, schedule.SendB, schedule.RecvB
			}
			find := func(stage int, kinds ...schedule.Kind) (found *event) {
				for _, kind := range kinds {
					found = cmp.Or(found, of[schedule.NewAction(kind, stage, e.action.Microbatch())])
				}
				return found
			}
			if !begins {
				e.input, e.send, e.receive = find(before, computes...), find(before, send), find(stage, receive)
			}
			if !ends {
				e.taker = find(after, computes...)
			}
		}
	}
}

// events yields the events of all steps.
func (u *measurement) events() iter.Seq[*event] {
	return func(yield func(*event) bool) {
		for _, s := range u.steps {
			for _, events := range s {
				for i := range events {
					if !yield(&events[i]) {
						return
					}
				}
			}
		}
	}
}

// ready returns the time at which the input of an event was computed, or math.MinInt64 if the step
// does not compute it.
func (e *event) ready() int64 {
	if e.input == nil {
		return math.MinInt64
	}
	return e.input.end
}
