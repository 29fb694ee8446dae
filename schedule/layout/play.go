package layout

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// A player runs the program of one rank on a profile, as a runner runs it on buffers. It
// counts the same references and ends them in the same order.
type player struct {
	plan      *schedule.Plan
	profile   *Profile
	ports     *ports
	rank      int
	lookAhead int
	replicas  int
	shapes    []int    // by microbatch; nil if there is one class
	wants     []uint64 // by copy of the model: the parts of entries that are read
	limit     int      // largest number of births
	far       bool     // plays only the buffers in far memory

	allocations []allocation
	held        map[slot]contents
	lent        lists // allocations that the current call may refer to
	pulled      int   // entries pulled so far, in the order of the batch

	at          position
	ordinal     int32       // of the next birth at the position
	count       int32       // changes so far
	repeatStart int32       // changes before the current repeat
	skip        *skipper    // nil plays every repeat
	log         []int32     // the changes: the number of the allocation for a birth, its complement for a death
	visits      []visit     // the actions in order
	emit        func(int32) // called with every change instead of logging it, if it is not nil
	spans       []span      // by segment
	program     []schedule.Segment
	top         *liveBytes // maxima of the live bytes, computed on demand
}

// visit is an action that was played, and the number of changes before it.
type visit struct {
	at    position
	start int32
}

// slot is the key of allocations that a rank holds for a stage and a microbatch. The parts of an entry
// are in slot Part of stage -1. The microbatch is -1 for allocations of a stage without one. Slot
// Saved holds all buffers of the stage's profile.
type slot struct {
	kind              effects.Place
	stage, microbatch int32
}

// contents are the allocations in a slot. Inputs, gradients and parts that have ended remain while
// the stage has calls for the microbatch, because their profile may still refer to them.
type contents struct {
	segment     int32  // in which the slot was filled
	wanted      uint64 // of an entry: the parts that have not ended
	allocations []int32
}

// lists are the allocations that the events of a call may refer to, by kind of reference.
type lists [PartRead + 1][]int32

// Numbers that stand for no allocation.
const (
	nothing  int32 = -1 // no buffer, or a port without a tensor
	resident int32 = -2 // a buffer that existed before the step
)

// maxBirths is the largest number of allocations that are planned for a rank. Only programs whose
// repeats all differ exceed it.
const maxBirths = 1 << 18

func newPlayer(plan *schedule.Plan, profile *Profile, ports *ports, rank int, far bool, cfg *Config) *player {
	p := &player{
		plan: plan, profile: profile, ports: ports, rank: rank, lookAhead: cfg.LookAhead, replicas: cfg.Replicas, shapes: cfg.Shapes,
		wants: plan.Wanted(rank), limit: maxBirths, far: far, program: plan.Programs[rank],
		held: map[slot]contents{},
	}
	if far {
		p.pulled = plan.Microbatches // entries have no buffers in far memory
	}
	return p
}

// play plays the program and step end.
func (p *player) play() error {
	if p.tooManyInFlight() {
		return fmt.Errorf("rank %d: %w", p.rank, p.tooLong())
	}
	for s := range p.program {
		if err := p.playSegment(s); err != nil {
			return err
		}
	}
	p.repeatStart = p.count
	p.arrive(len(p.program), 0, 0)
	if err := p.finish(); err != nil {
		return fmt.Errorf("rank %d, step end: %w", p.rank, err)
	}
	return p.checkReleased()
}

// tooManyInFlight reports whether the microbatches in flight of stages that allocate exceed the limit
// of births.
func (p *player) tooManyInFlight() bool {
	inFlight := 0
	for _, segment := range p.program {
		started := 0 // in a repeat, minus those that end
		for _, a := range segment.Body {
			stage, kind := a.Stage(), a.Kind()
			call := p.profile.stage(0, stage).call(schedule.F, p.plan, stage)
			if call == nil || !slices.ContainsFunc(call.Events, func(e RefChange) bool { return e.Op == Alloc }) {
				continue
			}
			if kind == schedule.F {
				started++
			}
			if p.plan.Ends(stage, kind) {
				started--
			}
		}
		if inFlight += started * segment.Repeat; inFlight > p.limit {
			return true
		}
	}
	return false
}

// playSegment plays the repeats of a segment, except those that the skipper skips.
func (p *player) playSegment(s int) error {
	segment := &p.program[s]
	p.spans = append(p.spans, span{lead: segment.Repeat})
	if p.skip != nil {
		p.skip.beginSegment()
	}
	for r := 0; r < segment.Repeat; r++ {
		p.repeatStart = p.count
		shift := r * segment.Stride
		for i, a := range segment.Body {
			p.arrive(s, r, i)
			if err := p.act(a.Shift(shift)); err != nil {
				return fmt.Errorf("rank %d, %v: %w", p.rank, a.Shift(shift), err)
			}
		}
		if p.skip != nil {
			r += p.skip.endRepeat(p, segment, r)
		}
	}
	if p.spans[s].skipped == 0 {
		p.spans[s] = span{lead: segment.Repeat}
	}
	return nil
}

// arrive makes an action the current one.
func (p *player) arrive(segment, repeat, index int) {
	p.at, p.ordinal = position{int32(segment), int32(repeat), int32(index)}, 0
	if p.emit == nil {
		p.visits = append(p.visits, visit{p.at, p.count})
	}
}

// shape returns the shape class of a microbatch.
func (p *player) shape(microbatch int) int {
	if p.shapes == nil || microbatch < 0 {
		return 0
	}
	return p.shapes[microbatch]
}

// act plays an action. Its effects have the order that package effects defines.
func (p *player) act(a schedule.Action) error {
	s, m, e := int32(a.Stage()), int32(a.Microbatch()), effects.Of(p.plan, a)
	if a.Kind().OfStage() {
		m = -1
	}
	if p.far {
		return p.actFar(a.Kind(), s, m, e.Ends)
	}
	if e.Pulls {
		if err := p.pull(p.plan.Item(int(m))); err != nil {
			return err
		}
	}
	out, taken, err := p.work(a.Kind(), s, m)
	if err != nil {
		return err
	}
	if e.To != effects.None && out != nil {
		p.put(slot{e.To, e.Stage, m}, out)
	}
	for left := e.Ends; left != 0; left &= left - 1 {
		switch kind := left.First(); kind {
		case effects.Part:
			err = p.dropParts(slot{kind, -1, m}, e.Parts)
		case effects.Saved:
			if a.Kind() == schedule.WaitOffload {
				err = p.move(a.Kind(), s, m)
				break
			}
			err = p.events(&p.lent, nil, taken, origin{})
		case effects.Far: // played by actFar
		case effects.ForwardWeights, effects.BackwardWeights:
			err = p.end(slot{kind, s, -1})
		default:
			err = p.end(slot{kind, s, m})
		}
		if err != nil {
			return err
		}
	}
	if e.Last {
		for kind := effects.Part; kind <= effects.Saved; kind++ {
			delete(p.held, slot{kind, s, m})
		}
	}
	return nil
}

// put stores allocations in a slot.
func (p *player) put(w slot, allocations []int32) {
	p.held[w] = contents{segment: p.at.segment, allocations: allocations}
}

// work plays the call of a stage or the incoming transfer of an action. It returns the allocations
// that are handed over, and the events that end slots.
func (p *player) work(kind schedule.Kind, s, m int32) (out []int32, taken []RefChange, err error) {
	switch kind {
	case schedule.RecvF, schedule.RecvB:
		out, err = p.receive(kind, s, m)
		return out, nil, err
	case schedule.SendF, schedule.SendB, schedule.WaitF, schedule.WaitB, schedule.Reshard, schedule.ReduceGrad, schedule.WaitReduce, schedule.Offload, schedule.WaitOffload:
		return nil, nil, nil
	case schedule.Reload:
		return nil, nil, p.move(kind, s, m)
	}
	t := p.profile.stage(p.shape(int(m)), int(s))
	c := t.call(kind, p.plan, int(s))
	if c == nil {
		if kind == schedule.Unshard || kind == schedule.ZeroGrad {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("%w: stage %d (%s) has no profile of %v", ErrProfile, s, t.Stage, kind)
	}
	if out, taken, err = p.call(t, c, s, m); err != nil || kind != schedule.Quantize {
		if len(out) == 0 && kind != schedule.F { // no gradient is handed over
			out = nil
		}
		return out, taken, err
	}
	p.put(slot{effects.BackwardWeights, s, m}, out[c.Forward:])
	return out[:c.Forward], nil, nil
}

// call plays the events of a call, except those that end slots, which it returns.
func (p *player) call(t *StageProfile, c *Call, s, m int32) (out []int32, taken []RefChange, err error) {
	if _, ok := p.held[slot{effects.Saved, s, m}]; !ok { // the first call for the microbatch
		p.put(slot{effects.Saved, s, m}, unallocated(t.Buffers))
		if e, ok := p.held[slot{effects.Part, -1, m}]; ok {
			p.put(slot{effects.Part, s, m}, e.allocations)
		}
	}
	p.lent = lists{
		Own: p.held[slot{effects.Saved, s, m}].allocations, In: p.held[slot{effects.Input, s, m}].allocations,
		GradOut: p.held[slot{effects.Gradient, s, m}].allocations, PartRead: p.held[slot{effects.Part, s, m}].allocations,
	}
	o, during := origin{kind: ofStage, stage: s, microbatch: m}, len(c.Events)-c.Taken
	if m < 0 {
		o.kind, during = ofStageAlways, len(c.Events)
	}
	if err := p.events(&p.lent, t.Buffers, c.Events[:during], o); err != nil {
		return nil, nil, err
	}
	out = make([]int32, len(c.Out))
	for i, ref := range c.Out {
		if out[i], err = p.lent.resolve(ref); err != nil {
			return nil, nil, err
		}
	}
	return out, c.Events[during:], nil
}

// unallocated returns the allocations of the buffers of a profile before the first call: nothing, or
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

// events plays the events of a call or of an entry.
func (p *player) events(f *lists, buffers []Buffer, events []RefChange, o origin) error {
	for _, e := range events {
		if e.Op == Alloc {
			if e.Ref.Kind != Own || e.Ref.Index < 0 || e.Ref.Index >= len(buffers) {
				return fmt.Errorf("%w: an allocation of %v", ErrProfile, e.Ref)
			}
			b := &buffers[e.Ref.Index]
			o.index = int32(e.Ref.Index)
			i, err := p.allocate(b.Bytes, b.AtMost, b.Class, o)
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
			p.allocations[i].refs++
		} else if err := p.release(i); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the allocation that a reference of a profile names.
func (f *lists) resolve(ref Ref) (int32, error) {
	if ref.Kind == None {
		return nothing, nil
	}
	if list := f[ref.Kind]; ref.Index >= 0 && ref.Index < len(list) && list[ref.Index] != nothing {
		return list[ref.Index], nil
	}
	return 0, fmt.Errorf("%w: it refers to %v, which is not allocated", ErrProfile, ref)
}

// pull plays the source for the entries up to this index of the batch, and for the look-ahead after
// them.
func (p *player) pull(index int) error {
	for upto := effects.Upto(p.plan, index, p.lookAhead); p.pulled <= upto; p.pulled++ {
		m, wanted := p.plan.OfItem(p.pulled), p.wants[p.pulled%len(p.wants)]
		shape := &p.profile.Shapes[p.shape(m)]
		which := slices.IndexFunc(shape.Entries, func(e Entry) bool { return e.Parts == wanted })
		if which < 0 {
			if wanted == 0 {
				continue
			}
			return fmt.Errorf("%w: shape class %q has no entry with parts %q", ErrProfile, shape.Name, p.profile.names(wanted))
		}
		e := &shape.Entries[which]
		f := lists{Own: unallocated(e.Buffers)}
		if err := p.events(&f, e.Buffers, e.Events, origin{kind: ofEntry, stage: int32(which), microbatch: int32(m)}); err != nil {
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
		p.held[slot{effects.Part, -1, int32(m)}] = contents{p.at.segment, wanted, parts}
	}
	return nil
}

// entry returns the profile of an entry with these wanted parts.
func (s *ShapeProfile) entry(parts uint64) *Entry {
	for i := range s.Entries {
		if s.Entries[i].Parts == parts {
			return &s.Entries[i]
		}
	}
	return nil
}

// receive plays an incoming transfer, which allocates a buffer for every tensor that it copies.
func (p *player) receive(kind schedule.Kind, s, m int32) (got []int32, err error) {
	o := origin{kind: ofInput, stage: s, microbatch: m}
	var list []port
	if kind == schedule.RecvF {
		list, err = p.ports.handed(p.shape(int(m)), int(s)-1, true)
	} else {
		o.kind = ofGradient
		list, err = p.ports.handed(p.shape(int(m)), int(s)+1, false)
	}
	if err != nil {
		return nil, err
	}
	got = make([]int32, len(list))
	for i, port := range list {
		got[i] = nothing
		if port.bytes > 0 {
			o.index = int32(i)
			if got[i], err = p.allocate(port.bytes, port.atMost, memory.Transfer, o); err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}
