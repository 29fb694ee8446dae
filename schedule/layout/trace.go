package layout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// A trace records what one rank allocates and releases in a step, in order. It executes the program of
// the rank on the profile as a runner executes it on buffers: it counts the same references and releases
// them in the same order.
type trace struct {
	*Memory
	rank    int
	far     bool // traces only the buffers in far memory
	program []schedule.Segment
	wants   []uint64 // by copy of the model: the entry parts that are read
	limit   int      // largest number of births
	skips   bool     // skips repeats that equal the previous ones
	kept    float64  // share of the repeats of a segment that are not skipped; at least one cycle is traced
	// rotations sets the cycles of segments; otherwise a cycle is as long as the longest life.
	rotations map[int]*rotation

	// The state of the rank.
	held        map[slot]contents
	lent        lists // allocations that the current call may refer to
	pulled      int   // entries pulled so far, in the order of the batch
	at          position
	ordinal     int32       // of the next birth at the position
	repeatStart int32       // number of changes before the current repeat
	recurrence  *recurrence // of the current segment; nil if every repeat of it is traced

	// The result.
	allocations []allocation
	log         []int32                // the changes: the number of the allocation for a birth, its complement for a death
	actions     []tracedAction         // in order
	segments    []memory.SegmentPlaces // of the program
	total       int64                  // number of births in the whole program, counting all repeats
	births      []int32                // by place, the number of births at the places before it, followed by all births of the layout
	top         *liveBytes             // maxima of the live bytes, computed on demand
}

// tracedAction is an action that was executed, and the number of changes before it.
type tracedAction struct {
	at    position
	start int32
}

// slot is the key of the allocations that a rank holds for a stage and a microbatch. The parts of an
// entry are in slot Part of stage -1. The microbatch is -1 for allocations of a stage without one. Slot
// Saved holds all buffers of the stage's profile.
type slot struct {
	kind              effects.BufferKind
	stage, microbatch int32
}

// contents holds the allocations in a slot. Inputs, gradients and parts that have ended stay listed while
// the stage still has calls for the microbatch, because the profile of those calls may refer to them.
type contents struct {
	segment     int32  // the segment in which the slot was filled
	wanted      uint64 // for an entry: the parts that have not ended
	allocations []int32
}

// lists holds the allocations that the events of a call may refer to, by kind of reference.
type lists [PartRead + 1][]int32

// Values in place of the number of an allocation.
const (
	nothing  int32 = -1 // no buffer, or a port without a tensor
	resident int32 = -2 // a buffer that existed before the step
)

// maxBirths is the largest number of allocations that are planned for a rank. A program exceeds it if its
// repeats all differ, or if a cycle of them is very long.
const maxBirths = 1 << 18

func (p *Memory) newTrace(rank int, far bool) *trace {
	t := &trace{
		Memory: p, rank: rank, far: far, program: p.plan.Programs[rank], wants: p.plan.Wanted(rank), limit: cmp.Or(p.cfg.births, maxBirths),
		held: map[slot]contents{},
	}
	if far {
		t.pulled = p.plan.Microbatches // entries have no buffers in far memory
	}
	return t
}

// run executes the program and step end.
func (t *trace) run() error {
	if t.tooManyInFlight() {
		return fmt.Errorf("rank %d: %w", t.rank, t.tooLong())
	}
	for s := range t.program {
		if err := t.runSegment(s); err != nil {
			return err
		}
	}
	born := len(t.allocations)
	t.recurrence, t.repeatStart = nil, int32(len(t.log))
	t.arrive(len(t.program), 0, 0)
	if err := t.finish(); err != nil {
		return fmt.Errorf("rank %d, step end: %w", t.rank, err)
	}
	t.total += int64(len(t.allocations) - born)
	return t.checkReleased()
}

// tooManyInFlight reports whether, counting only stages that allocate, there are more microbatches in
// flight than the limit on births allows.
func (t *trace) tooManyInFlight() bool {
	inFlight := 0
	for _, segment := range t.program {
		started := 0 // number of microbatches that a repeat starts, minus those that it ends
		for _, a := range segment.Body {
			stage, kind := a.Stage(), a.Kind()
			call := t.profile.stage(0, stage).call(schedule.F, t.plan, stage)
			if call == nil || !slices.ContainsFunc(call.Events, func(e RefChange) bool { return e.Op == Alloc }) {
				continue
			}
			if kind == schedule.F {
				started++
			}
			if t.plan.Ends(stage, kind) {
				started--
			}
		}
		if inFlight += started * segment.Repeat; inFlight > t.limit {
			return true
		}
	}
	return false
}

// runSegment executes the repeats of a segment, except those that may be skipped.
func (t *trace) runSegment(s int) error {
	segment := &t.program[s]
	t.segments = append(t.segments, memory.SegmentPlaces{First: t.stepEnd(), Body: len(segment.Body), Repeat: segment.Repeat, Lead: segment.Repeat})
	t.recurrence = nil
	if t.skips && !t.ramp(segment) {
		t.recurrence = &recurrence{}
	}
	born, skipped := len(t.allocations), 0
	for r := 0; r < segment.Repeat; r++ {
		t.repeatStart = int32(len(t.log))
		shift := r * segment.Stride
		for i, a := range segment.Body {
			t.arrive(s, r, i)
			if err := t.execute(a.Shift(shift)); err != nil {
				return fmt.Errorf("rank %d, %v: %w", t.rank, a.Shift(shift), err)
			}
		}
		if t.recurrence != nil {
			n := t.skip(segment, r)
			r, skipped = r+n, skipped+n
		}
	}
	if skipped == 0 {
		t.segments[s].Lead, t.segments[s].Cycle, t.segments[s].Tail = segment.Repeat, 0, 0
	}
	t.total += int64(len(t.allocations)-born) * int64(segment.Repeat) / int64(max(segment.Repeat-skipped, 1))
	return nil
}

// arrive makes an action the current one.
func (t *trace) arrive(segment, repeat, index int) {
	t.at, t.ordinal = position{int32(segment), int32(repeat), int32(index)}, 0
	t.actions = append(t.actions, tracedAction{t.at, int32(len(t.log))})
}

// shape returns the shape class of a microbatch.
func (p *Memory) shape(microbatch int) int {
	if p.cfg.Shapes == nil || microbatch < 0 {
		return 0
	}
	return p.cfg.Shapes[microbatch]
}

// execute executes an action. Its effects take place in the order that package effects defines.
func (t *trace) execute(a schedule.Action) error {
	s, m, e := int32(a.Stage()), int32(a.Microbatch()), effects.Of(t.plan, a)
	if a.Kind().OfStage() {
		m = -1
	}
	if t.far {
		return t.executeFar(a.Kind(), s, m, e.Ends)
	}
	if e.Pulls {
		if err := t.pull(t.plan.BatchIndex(int(m))); err != nil {
			return err
		}
	}
	out, taken, err := t.work(a.Kind(), s, m)
	if err != nil {
		return err
	}
	if e.To != effects.None && out != nil {
		t.put(slot{e.To, e.Stage, m}, out)
	}
	for left := e.Ends; left != 0; left &= left - 1 {
		switch kind := left.First(); kind {
		case effects.Part:
			err = t.dropParts(slot{kind, -1, m}, e.Parts)
		case effects.Saved:
			if a.Kind() == schedule.WaitOffload {
				err = t.move(a.Kind(), s, m)
				break
			}
			err = t.events(&t.lent, nil, taken, origin{})
		case effects.Far: // released by executeFar
		case effects.ForwardWeights, effects.BackwardWeights:
			err = t.end(slot{kind, s, -1})
		default:
			err = t.end(slot{kind, s, m})
		}
		if err != nil {
			return err
		}
	}
	if e.Last {
		for kind := effects.Part; kind <= effects.Saved; kind++ {
			delete(t.held, slot{kind, s, m})
		}
	}
	return nil
}

// put stores allocations in a slot.
func (t *trace) put(w slot, allocations []int32) {
	t.held[w] = contents{segment: t.at.segment, allocations: allocations}
}

// work executes the call of a stage or the incoming transfer of an action. It returns the allocations that the action
// hands over, and the events that end slots.
func (t *trace) work(kind schedule.Kind, s, m int32) (out []int32, taken []RefChange, err error) {
	switch kind {
	case schedule.RecvF, schedule.RecvB:
		out, err = t.receive(kind, s, m)
		return out, nil, err
	case schedule.SendF, schedule.SendB, schedule.WaitF, schedule.WaitB, schedule.Reshard, schedule.ReduceGrad, schedule.WaitReduce, schedule.Offload, schedule.WaitOffload:
		return nil, nil, nil
	case schedule.Reload:
		return nil, nil, t.move(kind, s, m)
	}
	stage := t.profile.stage(t.shape(int(m)), int(s))
	c := stage.call(kind, t.plan, int(s))
	if c == nil {
		if kind == schedule.Unshard || kind == schedule.ZeroGrad {
			return nil, nil, nil
		}
		return nil, nil, diagnostic.Errorf(ErrProfile, "stage %d (%s) has no profile of %v", s, stage.Stage, kind)
	}
	if out, taken, err = t.call(stage, c, s, m); err != nil || kind != schedule.Quantize {
		if len(out) == 0 && kind != schedule.F { // no gradient is handed over
			out = nil
		}
		return out, taken, err
	}
	t.put(slot{effects.BackwardWeights, s, m}, out[c.Forward:])
	return out[:c.Forward], nil, nil
}

// call executes the events of a call, except those that end slots, which it returns.
func (t *trace) call(stage *StageProfile, c *Call, s, m int32) (out []int32, taken []RefChange, err error) {
	if _, ok := t.held[slot{effects.Saved, s, m}]; !ok { // the first call for the microbatch
		t.put(slot{effects.Saved, s, m}, unallocated(stage.Buffers))
		if e, ok := t.held[slot{effects.Part, -1, m}]; ok {
			t.put(slot{effects.Part, s, m}, e.allocations)
		}
	}
	t.lent = lists{
		Own: t.held[slot{effects.Saved, s, m}].allocations, In: t.held[slot{effects.Input, s, m}].allocations,
		GradOut: t.held[slot{effects.Gradient, s, m}].allocations, PartRead: t.held[slot{effects.Part, s, m}].allocations,
	}
	o, during := origin{kind: ofStage, stage: s, microbatch: m}, len(c.Events)-c.Taken
	if m < 0 {
		o.kind, during = ofStageAlways, len(c.Events)
	}
	if err := t.events(&t.lent, stage.Buffers, c.Events[:during], o); err != nil {
		return nil, nil, err
	}
	out = make([]int32, len(c.Out))
	for i, ref := range c.Out {
		if out[i], err = t.lent.resolve(ref); err != nil {
			return nil, nil, err
		}
	}
	return out, c.Events[during:], nil
}

// unallocated returns the allocations of a profile's buffers before the first call: each is nothing or
// resident.
func unallocated(buffers []Buffer) []int32 {
	own := make([]int32, len(buffers))
	for i, b := range buffers {
		own[i] = nothing
		if b.Class == memory.Resident {
			own[i] = resident
		}
	}
	return own
}

// events executes the events of a call or of an entry.
func (t *trace) events(f *lists, buffers []Buffer, events []RefChange, o origin) error {
	for _, e := range events {
		if e.Op == Alloc {
			if e.Ref.Kind != Own || e.Ref.Index < 0 || e.Ref.Index >= len(buffers) {
				return diagnostic.Errorf(ErrProfile, "an allocation of %v", e.Ref)
			}
			b := &buffers[e.Ref.Index]
			o.index = int32(e.Ref.Index)
			i, err := t.allocate(b.Bytes, b.AtMost, b.Class, o)
			if err != nil {
				return err
			}
			f[Own][e.Ref.Index] = i
			continue
		}
		i, err := f.resolve(e.Ref)
		if err != nil {
			return err
		}
		if i < 0 {
			continue
		}
		if e.Op == Retain {
			t.allocations[i].refs++
		} else if err := t.release(i); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the allocation that a profile's reference names.
func (f *lists) resolve(ref Ref) (int32, error) {
	if ref.Kind == None {
		return nothing, nil
	}
	if list := f[ref.Kind]; ref.Index >= 0 && ref.Index < len(list) && list[ref.Index] != nothing {
		return list[ref.Index], nil
	}
	return 0, diagnostic.Errorf(ErrProfile, "it refers to %v, which is not allocated", ref)
}

// pull executes the source for the entries up to this index of the batch, and for the look-ahead after
// them.
func (t *trace) pull(index int) error {
	for upto := effects.Upto(t.plan, index, t.cfg.LookAhead); t.pulled <= upto; t.pulled++ {
		m, wanted := t.plan.MicrobatchAt(t.pulled), t.wants[t.pulled%len(t.wants)]
		shape := &t.profile.Shapes[t.shape(m)]
		which := slices.IndexFunc(shape.Entries, func(e EntryProfile) bool { return e.Parts == wanted })
		if which < 0 {
			if wanted == 0 {
				continue
			}
			return diagnostic.Errorf(ErrProfile, "shape class %q has no entry with parts %q", shape.Name, t.profile.names(wanted))
		}
		e := &shape.Entries[which]
		f := lists{Own: unallocated(e.Buffers)}
		if err := t.events(&f, e.Buffers, e.Events, origin{kind: ofEntry, stage: int32(which), microbatch: int32(m)}); err != nil {
			return err
		}
		if wanted == 0 {
			continue
		}
		parts := make([]int32, len(e.Out))
		for part, ref := range e.Out {
			parts[part] = nothing
			if wanted>>part&1 == 1 {
				var err error
				if parts[part], err = f.resolve(ref); err != nil {
					return err
				}
			}
		}
		t.held[slot{effects.Part, -1, int32(m)}] = contents{t.at.segment, wanted, parts}
	}
	return nil
}

// entry returns the profile of the entry in which exactly these parts are wanted, or nil.
func (s *ShapeProfile) entry(parts uint64) *EntryProfile {
	for i := range s.Entries {
		if s.Entries[i].Parts == parts {
			return &s.Entries[i]
		}
	}
	return nil
}

// receive executes an incoming transfer, which allocates a buffer for every tensor that it copies.
func (t *trace) receive(kind schedule.Kind, s, m int32) (got []int32, err error) {
	o := origin{kind: ofInput, stage: s, microbatch: m}
	var list []port
	if kind == schedule.RecvF {
		list, err = t.ports.handed(t.shape(int(m)), int(s)-1, true)
	} else {
		o.kind = ofGradient
		list, err = t.ports.handed(t.shape(int(m)), int(s)+1, false)
	}
	if err != nil {
		return nil, err
	}
	got = make([]int32, len(list))
	for i, port := range list {
		got[i] = nothing
		if port.bytes > 0 {
			o.index = int32(i)
			if got[i], err = t.allocate(port.bytes, port.atMost, memory.Transfer, o); err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}
