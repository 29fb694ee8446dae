package lower

import (
	"errors"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Lifetimes returns a plan with the same actions, each with its drops, given the facts of each stage
// and the number of parts in a batch entry. It fills in Facts, Parts, Windows, Outgoing and Entries.
// It replaces any drops of the given plan, but does not modify that plan.
//
// Package effects defines the lifetimes that an action ends because of its kind. In addition, on
// every rank, an entry part ends with the last action that reads it (L1), and so do the copies of a
// stage's weights. A copy of saved state in far memory ends with the B or I that takes the
// state. A microbatch retires with its last action, which may be a wait for a send. An action without
// a microbatch, such as UNSHARD, drops nothing.
//
// Lifetimes splits a segment if the drops in its first or last repeats differ from those in the other
// repeats, so that all repeats of a body have the same drops. The cost depends on the size of the
// plan's segments, as for [check.Plan].
//
// If the plan is invalid, Lifetimes returns the error of [check.Plan]. Other errors wrap ErrFacts.
// The plan must wait for each of its sends, like the plans of [Transfers].
func Lifetimes(plan *schedule.Plan, facts []schedule.Facts, parts int) (*schedule.Plan, error) {
	if err := checkFacts(facts, plan.Placement.Stages(), parts); err != nil {
		return nil, err
	}
	bare := withoutDrops(plan)
	bare.Facts = facts
	if err := check.Plan(bare); err != nil {
		return nil, err
	}
	return lifetimes(plan, facts)
}

// lifetimes adds lifetimes to a valid plan.
func lifetimes(plan *schedule.Plan, facts []schedule.Facts) (*schedule.Plan, error) {
	marked := withoutDrops(plan)
	marked.Facts = slices.Clone(facts)
	o := passes.NewOutline(marked)
	marked.Parts = make([][schedule.NumKinds]uint64, o.Stages)
	marked.Windows = make([]int, o.Stages)
	if len(marked.Programs) > 1 {
		marked.Outgoing = make([]int, o.Stages)
	}
	marked.Entries = make([]int, marked.Placement.Ranks)
	for rank, program := range marked.Programs {
		v := newMarking(&o, rank)
		v.Program(passes.Backwards(program), v.visit)
		if c := (&check.Checker{Name: plan.Name}); c.Unproved(&v.Walk, rank) {
			return nil, c.Err()
		}
		if v.fault == nil {
			v.fault = v.unread()
		}
		if v.fault != nil {
			return nil, v.fault
		}
		marked.Programs[rank] = passes.Backwards(segments(v.lists[0]))
		marked.Entries[rank] = int(max(v.most, 1))
	}
	return marked, nil
}

// checkFacts reports all faults of the facts for the given numbers of stages and entry parts.
func checkFacts(facts []schedule.Facts, stages, parts int) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, diagnostic.Errorf(schedule.ErrFacts, format, args...))
	}
	if len(facts) != stages {
		fault("there are facts for %d stages, but the plan has %d stages", len(facts), stages)
	}
	if parts < 0 || parts > schedule.MaxParts {
		fault("an entry has %d parts: use 0 to %d", parts, schedule.MaxParts)
		return errors.Join(faults...)
	}
	for stage, f := range facts {
		for kind, reads := range f.Reads {
			if unknown := reads >> parts; parts < schedule.MaxParts && unknown != 0 {
				fault("stage %d reads a part at %v that is not one of the %d parts of an entry", stage, schedule.Kind(kind), parts)
			}
		}
	}
	return errors.Join(faults...)
}

// withoutDrops returns a copy of the plan without the results of the lifetime pass.
func withoutDrops(plan *schedule.Plan) *schedule.Plan {
	bare := *plan
	bare.Facts, bare.Parts, bare.Windows, bare.Outgoing, bare.Entries = nil, nil, nil, nil, nil
	bare.Programs = make([][]schedule.Segment, len(plan.Programs))
	for rank, program := range plan.Programs {
		bare.Programs[rank] = bareProgram(program)
	}
	return &bare
}

func bareProgram(program []schedule.Segment) []schedule.Segment {
	list := slices.Clone(program)
	for i, s := range list {
		list[i].Body, list[i].Inner = slices.Clone(s.Body), bareProgram(s.Inner)
		for k, a := range s.Body {
			list[i].Body[k] = a.WithDrop(0)
		}
	}
	return list
}

// marking is the visitor that traverses a rank's program backwards. The first use that it visits is
// the last use in the program, and from its point of view, a lifetime ends at the action that begins it.
type marking struct {
	passes.Walk
	*passes.Outline
	rank  int
	lower []int // by copy of the model: the lowest stage on the rank, where microbatches begin on the rank, or -1

	// Indices of sets.
	seen     int // by copy of the model: microbatches whose last action on the rank was visited
	dead     int // by copy of the model and part: microbatches whose last read of the part was visited
	touched  int // by the rank's stages: microbatches whose last computation was visited
	live     int // by the rank's stages: microbatches in flight
	outgoing int // by the rank's stages, two sets each: microbatches whose output, and whose gradient, is waiting to be sent or in flight
	entry    int // by copy of the model: microbatches with a live entry part
	weights  int // by the rank's stages, two flags each: the last action that reads the forward, and the backward, copies of weights was visited
	away     int // by the rank's stages: microbatches whose saved state is reloaded; empty unless the plan offloads

	byKind []kindEffect      // by the rank's stages and by kind
	most   int64             // the maximum width of the range of live entries
	body   []schedule.Action // the actions of the current repeat, with drops
	lists  [2][]piece        // by depth: the repeats visited before
	fault  error
}

// kindEffect holds the effects of an action that depend only on its stage and kind.
type kindEffect struct {
	drops   schedule.Drop
	to      effects.Place
	parts   bool        // the action reads entry parts
	weights effects.Set // the copies of weights that the action reads
	born    []int       // the stages whose input the action creates on the rank
}

// piece is a run of consecutive repeats of a segment with the same drops.
type piece struct {
	schedule.Segment
	source *schedule.Segment
}

func newMarking(o *passes.Outline, rank int) *marking {
	stages, copies := len(o.On[rank]), max(o.Plan.Placement.Copies, 1)
	v := &marking{Outline: o, rank: rank, seen: 0, dead: copies, touched: copies * (1 + schedule.MaxParts), lower: make([]int, copies)}
	v.live = v.touched + stages
	v.outgoing = v.live + stages
	v.entry = v.outgoing + 2*stages
	v.weights = v.entry + copies
	v.away = v.weights + 2*stages
	v.Walk = passes.NewWalk(o, v.away+stages)
	v.Repeats = v.repeats
	reloaded, ok := o.Reloads(rank)
	for i, microbatches := range reloaded {
		v.Put(v.away+i, microbatches)
	}
	v.Exhausted = !ok
	v.byKind = make([]kindEffect, stages*passes.KindsPerStage)
	for i, stage := range o.On[rank] {
		for kind := schedule.F; kind <= schedule.WaitB; kind++ {
			f := &v.byKind[i*passes.KindsPerStage+int(kind)]
			e := effects.OfKind(o.Plan, stage, kind)
			*f = kindEffect{drops: e.Ends.Drops(), to: e.To, parts: v.Reads(stage, kind) != 0}
			if o.Includes(stage, schedule.Quantize) {
				f.weights = effects.WeightReads(kind, o.Plan.Facts[stage].Recomputes)
			}
			if e.To == effects.Input {
				f.born = append(f.born, int(e.Stage))
			}
			if kind == schedule.F && (o.IsFirst(stage) || o.Crosses(stage-1) && !o.Transfers) {
				f.born = append(f.born, stage)
			}
		}
	}
	for c := range v.lower {
		v.lower[c] = -1
	}
	for _, stage := range slices.Backward(o.On[rank]) {
		v.lower[v.copyOf(stage)] = stage
	}
	return v
}

// copyOf returns the index of the copy of the model to which a stage belongs.
func (v *marking) copyOf(stage int) int { return stage / v.Plan.Placement.Depth() }

// deadOf returns the index of the first set in dead for a stage's copy of the model.
func (v *marking) deadOf(stage int) int { return v.dead + v.copyOf(stage)*schedule.MaxParts }

func (v *marking) visit(a schedule.Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	if kind.OfStage() {
		v.body = append(v.body, a)
		return
	}
	i := v.Place[stage]
	if kind > schedule.WaitB {
		v.body = append(v.body, a.Shift(int(mb)-a.Microbatch()).WithDrop(effects.OfKind(v.Plan, stage, kind).Ends.Drops()))
		return
	}
	effect := &v.byKind[i*passes.KindsPerStage+int(kind)]
	drop := effect.drops
	for reads := effect.weights; reads != 0; reads &= reads - 1 {
		if copies := reads.First(); v.Raise(v.weights + 2*i + int(copies-effects.ForwardWeights)) {
			drop |= effects.Set(1 << copies).Drops()
		}
	}
	if takes(a) && v.Offloads && v.Has(v.away+i, mb) {
		drop |= schedule.DropFar
	}
	if effect.parts && v.lastReads(stage, kind, mb) {
		drop |= schedule.DropParts
	}
	if v.Add(v.seen+v.copyOf(stage), mb) {
		drop |= schedule.Retire
	}
	if kind.Compute() && v.Add(v.touched+i, mb) {
		v.Add(v.live+i, mb)
		v.widen(v.Plan.Windows, stage, v.live+i)
	}
	if v.Transfers {
		v.sends(stage, kind, effect.to, mb)
	}
	for _, stage := range effect.born {
		v.Remove(v.live+v.Place[stage], mb)
		if c := v.copyOf(stage); stage == v.lower[c] {
			v.Remove(v.entry+c, mb)
		}
	}
	v.body = append(v.body, a.Shift(int(mb)-a.Microbatch()).WithDrop(drop))
}

// widen raises a stage's bound to the width of a set.
func (v *marking) widen(bounds []int, stage, set int) {
	bounds[stage] = max(bounds[stage], int(v.Get(set).Width()))
}

// sends tracks a sent buffer backwards, from the wait for its send to the computation that fills it.
func (v *marking) sends(stage int, kind schedule.Kind, to effects.Place, mb int64) {
	set := v.outgoing + 2*v.Place[stage]
	if kind == schedule.WaitB || kind == schedule.SendB || to == effects.SentGradient {
		set++
	}
	switch {
	case kind == schedule.WaitF || kind == schedule.WaitB:
		v.Add(set, mb)
		v.widen(v.Plan.Outgoing, stage, set)
	case kind == schedule.SendF || kind == schedule.SendB:
		if !v.Has(set, mb) && v.fault == nil {
			v.fault = diagnostic.Errorf(schedule.ErrFacts, "rank %d never waits for %d%v%d, so its buffer is never released: use a plan of Transfers, or add a wait for each send", v.rank, stage, kind, mb)
		}
	case to == effects.SentOutput || to == effects.SentGradient:
		v.Remove(set, mb)
	}
}

// lastReads adds the parts for which the action is the last reader to Plan.Parts, and reports whether
// there are any.
func (v *marking) lastReads(stage int, kind schedule.Kind, mb int64) bool {
	reads, dies := v.Reads(stage, kind), uint64(0)
	for part := 0; reads>>part != 0; part++ {
		if reads>>part&1 == 1 && v.Add(v.deadOf(stage)+part, mb) {
			dies |= 1 << part
		}
	}
	if dies == 0 {
		return false
	}
	entry := v.entry + v.copyOf(stage)
	v.Add(entry, mb)
	v.most = max(v.most, v.Get(entry).Width())
	table := &v.Plan.Parts[stage][kind]
	if *table != 0 && *table != dies && v.fault == nil {
		v.fault = diagnostic.Errorf(schedule.ErrFacts, "different entry parts die at %d%v for different microbatches (sets %#x and %#x), which a plan cannot express: use the same order of actions for all microbatches",
			stage, kind, *table, dies)
	}
	*table = dies
	return true
}

// unread returns an error if a part is read for only some microbatches of a copy of the model, because
// no action would release it for the other microbatches.
func (v *marking) unread() error {
	for _, stage := range v.lower {
		if stage < 0 {
			continue
		}
		all := v.Span(stage)
		for part := range schedule.MaxParts {
			for _, r := range (repeats.Runs{all}).Minus(v.Get(v.deadOf(stage) + part)) {
				if r != all {
					return diagnostic.Errorf(schedule.ErrFacts, "part %d of an entry is read on rank %d, but not for %v: declare it at a kind that every microbatch has", part, v.rank, r)
				}
			}
		}
	}
	return nil
}

// repeats appends n repeats: the visited repeat and others that are equal to it.
func (v *marking) repeats(s *schedule.Segment, n int64) {
	next := piece{schedule.Segment{Body: v.body, Repeat: int(n), Stride: s.Stride}, s}
	if s.Inner != nil {
		next.Inner = segments(v.lists[1])
	}
	list := &v.lists[v.Depth]
	last := len(*list) - 1
	visited := len(next.Body)+len(next.Inner) > 0
	switch {
	case last >= 0 && (*list)[last].source == s && (!visited || follows(&(*list)[last].Segment, &next.Segment)):
		(*list)[last].Repeat += int(n)
	default:
		next.Body = slices.Clone(v.body)
		*list = append(*list, next)
	}
	v.body = v.body[:0]
	if s.Inner != nil {
		v.lists[1] = v.lists[1][:0]
	}
}

// follows reports whether next equals the repeat that would follow the last repeat of s. Both repeat
// the same actions, and their inner segments are cut wherever the drops change. Inner segments that
// are cut at different places begin with different actions, because each action of a microbatch
// occurs only once in a valid plan. Therefore follows need not compare the repeats and strides of
// inner segments.
func follows(s, next *schedule.Segment) bool {
	by := s.Repeat * s.Stride
	same := func(a, b []schedule.Action) bool {
		return slices.EqualFunc(a, b, func(a, b schedule.Action) bool { return a.Shift(by) == b })
	}
	return same(s.Body, next.Body) && slices.EqualFunc(s.Inner, next.Inner, func(a, b schedule.Segment) bool {
		return same(a.Body, b.Body)
	})
}

func segments(pieces []piece) (list []schedule.Segment) {
	for i := range pieces {
		list = append(list, pieces[i].Segment)
	}
	return list
}
