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
// and the number of parts in a batch entry. It fills in StageInfo, Parts, StageWindows, SendWindows and EntryWindows.
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
// If the plan is invalid or too irregular, Lifetimes returns a [*check.Error], like [check.Plan]. Other
// errors wrap ErrStageInfo. The plan must wait for each of its sends, like the plans of [Transfers].
func Lifetimes(plan *schedule.Plan, facts []schedule.StageInfo, parts int) (*schedule.Plan, error) {
	if err := checkStageInfo(facts, plan.Placement.Stages(), parts); err != nil {
		return nil, err
	}
	bare := withoutDrops(plan)
	bare.StageInfo = facts
	if err := check.Plan(bare); err != nil {
		return nil, err
	}
	return lifetimes(plan, facts)
}

// lifetimes adds lifetimes to a valid plan.
func lifetimes(plan *schedule.Plan, facts []schedule.StageInfo) (*schedule.Plan, error) {
	marked := withoutDrops(plan)
	marked.StageInfo = slices.Clone(facts)
	o := passes.NewOutline(marked)
	marked.Parts = make([][schedule.NumKinds]uint64, o.Stages)
	marked.StageWindows = make([]int, o.Stages)
	if len(marked.Programs) > 1 {
		marked.SendWindows = make([]int, o.Stages)
	}
	marked.EntryWindows = make([]int, marked.Placement.Ranks)
	for rank, program := range marked.Programs {
		v := newMarking(&o, rank)
		v.walk.Program(passes.Backwards(program), v.visit)
		if c := (&check.Checker{Name: plan.Name}); c.Unproved(v.sets, rank) {
			return nil, c.Err()
		}
		if v.fault == nil {
			v.fault = v.unread()
		}
		if v.fault != nil {
			return nil, v.fault
		}
		marked.Programs[rank] = passes.Backwards(segments(v.lists[0]))
		marked.EntryWindows[rank] = int(max(v.most, 1))
	}
	return marked, nil
}

// checkStageInfo returns the faults of the facts for the given numbers of stages and entry parts as joined
// errors. If the number of parts is invalid, it does not check which parts the stages read.
func checkStageInfo(facts []schedule.StageInfo, stages, parts int) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, diagnostic.Errorf(schedule.ErrStageInfo, format, args...))
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
	bare.StageInfo, bare.Parts, bare.StageWindows, bare.SendWindows, bare.EntryWindows = nil, nil, nil, nil, nil
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
	outline *passes.Outline
	walk    passes.Walk
	sets    *repeats.Sets // of the walk
	rank    int
	stages  []markedStage // the stages of the rank
	copies  []modelCopy   // by copy of the model

	most  int64             // the maximum width of the range of live entries
	body  []schedule.Action // the actions of the current repeat, with drops
	lists [2][]piece        // by depth: the repeats visited before
	fault error
}

// markedStage is a stage of the rank. Its methods return the indices of the stage's sets.
type markedStage struct {
	first   int // the index of the first set
	effects [passes.KindsPerStage]kindEffect
}

// The sets of a stage are the microbatches whose last computation was visited, those in flight, those
// whose output, or whose gradient, is waiting to be sent or in flight, and those whose saved state is
// reloaded. Two flags tell whether the last action that reads the copies of weights for the forward, or
// for the backward, was visited.
func (s *markedStage) touched() int   { return s.first }
func (s *markedStage) live() int      { return s.first + 1 }
func (s *markedStage) outputs() int   { return s.first + 2 }
func (s *markedStage) gradients() int { return s.first + 3 }
func (s *markedStage) reloaded() int  { return s.first + 4 }
func (s *markedStage) weightsRead(copies effects.BufferKind) int {
	return s.first + 5 + int(copies-effects.ForwardWeights)
}

const setsOfStage = 7

// modelCopy is the part of a copy of the model that is on the rank. Its methods return the indices of
// its sets of microbatches.
type modelCopy struct {
	first  int // the index of the first set
	lowest int // the lowest stage on the rank, where microbatches begin on the rank, or -1
}

// A copy has these sets of microbatches: seen has those whose last action on the rank was visited, entry
// those with a live entry part, and read(part) those whose last read of the part was visited.
func (m *modelCopy) seen() int         { return m.first }
func (m *modelCopy) entry() int        { return m.first + 1 }
func (m *modelCopy) read(part int) int { return m.first + 2 + part }

const setsOfCopy = 2 + schedule.MaxParts

// kindEffect holds the effects of an action that depend only on its stage and kind.
type kindEffect struct {
	drops   schedule.Drop
	to      effects.BufferKind
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
	stages := o.On[rank]
	walk := passes.NewWalk(o, setsOfStage*len(stages)+setsOfCopy*o.Copies())
	v := &marking{outline: o, walk: walk, sets: walk.Sets, rank: rank, stages: make([]markedStage, len(stages)), copies: make([]modelCopy, o.Copies())}
	v.walk.Repeats = v.repeats
	for i := range v.copies {
		v.copies[i] = modelCopy{first: setsOfStage*len(stages) + setsOfCopy*i, lowest: -1}
	}
	for i, stage := range slices.Backward(stages) {
		own := &v.stages[i]
		own.first, v.copyOf(stage).lowest = setsOfStage*i, stage
		for kind := schedule.F; kind <= schedule.WaitB; kind++ {
			f := &own.effects[kind]
			e := effects.OfKind(o.Plan, stage, kind)
			*f = kindEffect{drops: e.Ends.Drops(), to: e.To, parts: o.Reads(stage, kind) != 0}
			if o.Includes(stage, schedule.Quantize) {
				f.weights = effects.WeightReads(kind, o.Plan.StageInfo[stage].Recomputes)
			}
			if e.To == effects.Input {
				f.born = append(f.born, int(e.Stage))
			}
			if kind == schedule.F && (o.IsFirst(stage) || o.Crosses(stage-1) && !o.Transfers) {
				f.born = append(f.born, stage)
			}
		}
	}
	reloaded, ok := o.Reloads(rank)
	for i, microbatches := range reloaded {
		v.sets.Put(v.stages[i].reloaded(), microbatches)
	}
	v.sets.Exhausted = !ok
	return v
}

// stage returns the state of a stage of the rank.
func (v *marking) stage(stage int) *markedStage { return &v.stages[v.outline.Place[stage]] }

// copyOf returns the rank's part of a stage's copy of the model.
func (v *marking) copyOf(stage int) *modelCopy { return &v.copies[v.outline.Sites[stage].Copy] }

func (v *marking) visit(a schedule.Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	if kind.OfStage() {
		v.body = append(v.body, a)
		return
	}
	if kind > schedule.WaitB {
		v.body = append(v.body, a.Shift(int(mb)-a.Microbatch()).WithDrop(effects.OfKind(v.outline.Plan, stage, kind).Ends.Drops()))
		return
	}
	own := v.stage(stage)
	effect := &own.effects[kind]
	drop := effect.drops
	for reads := effect.weights; reads != 0; reads &= reads - 1 {
		if copies := reads.First(); v.sets.Raise(own.weightsRead(copies)) {
			drop |= effects.Set(1 << copies).Drops()
		}
	}
	if takes(a) && v.outline.Offloads && v.sets.Has(own.reloaded(), mb) {
		drop |= schedule.DropFar
	}
	if effect.parts && v.lastReads(stage, kind, mb) {
		drop |= schedule.DropParts
	}
	if v.sets.Add(v.copyOf(stage).seen(), mb) {
		drop |= schedule.Retire
	}
	if kind.Compute() && v.sets.Add(own.touched(), mb) {
		v.sets.Add(own.live(), mb)
		v.widen(v.outline.Plan.StageWindows, stage, own.live())
	}
	if v.outline.Transfers {
		v.sends(stage, kind, effect.to, mb)
	}
	for _, stage := range effect.born {
		v.sets.Remove(v.stage(stage).live(), mb)
		if model := v.copyOf(stage); stage == model.lowest {
			v.sets.Remove(model.entry(), mb)
		}
	}
	v.body = append(v.body, a.Shift(int(mb)-a.Microbatch()).WithDrop(drop))
}

// widen raises a stage's bound to the width of a set.
func (v *marking) widen(bounds []int, stage, set int) {
	bounds[stage] = max(bounds[stage], int(v.sets.Get(set).Width()))
}

// sends tracks a sent buffer backwards, from the wait for its send to the computation that fills the buffer.
// It records a fault for a send without a wait.
func (v *marking) sends(stage int, kind schedule.Kind, to effects.BufferKind, mb int64) {
	set := v.stage(stage).outputs()
	if kind == schedule.WaitB || kind == schedule.SendB || to == effects.SentGradient {
		set = v.stage(stage).gradients()
	}
	switch {
	case kind == schedule.WaitF || kind == schedule.WaitB:
		v.sets.Add(set, mb)
		v.widen(v.outline.Plan.SendWindows, stage, set)
	case kind == schedule.SendF || kind == schedule.SendB:
		if !v.sets.Has(set, mb) && v.fault == nil {
			v.fault = diagnostic.Errorf(schedule.ErrStageInfo, "rank %d never waits for %d%v%d, so its buffer is never released: use a plan of Transfers, or add a wait for each send", v.rank, stage, kind, mb)
		}
	case to == effects.SentOutput || to == effects.SentGradient:
		v.sets.Remove(set, mb)
	}
}

// lastReads adds the parts for which the action is the last reader to Plan.Parts, and reports whether
// there are any.
func (v *marking) lastReads(stage int, kind schedule.Kind, mb int64) bool {
	model, reads, dies := v.copyOf(stage), v.outline.Reads(stage, kind), uint64(0)
	for part := 0; reads>>part != 0; part++ {
		if reads>>part&1 == 1 && v.sets.Add(model.read(part), mb) {
			dies |= 1 << part
		}
	}
	if dies == 0 {
		return false
	}
	v.sets.Add(model.entry(), mb)
	v.most = max(v.most, v.sets.Get(model.entry()).Width())
	table := &v.outline.Plan.Parts[stage][kind]
	if *table != 0 && *table != dies && v.fault == nil {
		v.fault = diagnostic.Errorf(schedule.ErrStageInfo, "different entry parts die at %d%v for different microbatches (sets %#x and %#x), which a plan cannot express: use the same order of actions for all microbatches",
			stage, kind, *table, dies)
	}
	*table = dies
	return true
}

// unread returns an error if a part is read for only some microbatches of a copy of the model, because
// no action would release the part for the other microbatches.
func (v *marking) unread() error {
	for i := range v.copies {
		model := &v.copies[i]
		if model.lowest < 0 {
			continue
		}
		all := v.outline.Span(model.lowest)
		for part := range schedule.MaxParts {
			for _, r := range (repeats.Runs{all}).Minus(v.sets.Get(model.read(part))) {
				if r != all {
					return diagnostic.Errorf(schedule.ErrStageInfo, "part %d of an entry is read on rank %d, but not for %v: declare it at a kind that every microbatch has", part, v.rank, r)
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
	list := &v.lists[v.walk.Depth]
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
