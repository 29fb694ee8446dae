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
	far       bool     // play the buffers in far memory, and no others

	allocations []allocation
	held        map[slot]contents
	lent        lists // allocations lent to the current call
	pulled      int   // entries pulled so far, in the order of the batch

	at      position
	ordinal int32       // of the next birth at the position
	count   int32       // changes so far
	begin   int32       // changes before the repeat
	skip    *skipper    // nil plays every repeat
	log     []int32     // the changes: the number of the allocation for a birth, its complement for a death
	visits  []visit     // the actions
	emit    func(int32) // called with every change as it is logged; may be nil
	spans   []repeats   // by segment
	program []schedule.Segment
	top     *liveBytes // maxima of the live bytes, computed on demand
}

// visit is an action, and the number of changes before it.
type visit struct {
	at    position
	since int32
}

// slot is the key of what a rank holds: a place of a stage and a microbatch. An entry has
// the place Part of stage -1. The microbatch is -1 for what belongs to a stage alone. The
// place Saved holds the buffers of the stage's profile.
type slot struct {
	place             effects.Place
	stage, microbatch int32
}

// contents are the allocations in a slot. Inputs, gradients and parts that have ended remain while
// the stage has calls for the microbatch, because their profile may still refer to them.
type contents struct {
	segment     int32  // where it began
	wanted      uint64 // of an entry: the parts that have not ended
	allocations []int32
}

// lists are the allocations that the events of a call may refer to, by kind of reference.
type lists [PartRead + 1][]int32

// Values in place of an allocation: a port without a tensor, and a buffer that existed before the
// step.
const (
	nothing  int32 = -1
	resident int32 = -2
)

// maxBirths is the largest number of allocations of one rank that is planned. Only programs
// whose repeats all differ reach it.
const maxBirths = 1 << 18

func newPlayer(plan *schedule.Plan, profile *Profile, ports *ports, rank int, far bool, cfg *Config) *player {
	p := &player{
		plan: plan, profile: profile, ports: ports, rank: rank, lookAhead: cfg.LookAhead, replicas: cfg.Replicas, shapes: cfg.Shapes,
		wants: plan.Wanted(rank), limit: maxBirths, far: far, program: plan.Programs[rank],
		held: map[slot]contents{},
	}
	if far {
		p.pulled = plan.Microbatches // entries are not there
	}
	return p
}

// play runs the program and step end.
func (p *player) play() error {
	if p.tooManyInFlight() {
		return fmt.Errorf("rank %d: %w", p.rank, p.tooLong())
	}
	for s := range p.program {
		if err := p.repeat(s); err != nil {
			return err
		}
	}
	p.begin = p.count
	p.arrive(len(p.program), 0, 0)
	if err := p.finish(); err != nil {
		return fmt.Errorf("rank %d, step end: %w", p.rank, err)
	}
	return p.checkReleased()
}

// tooManyInFlight reports whether the microbatches in flight of stages that allocate exceed the limit
// of births.
func (p *player) tooManyInFlight() bool {
	flight := 0
	for _, segment := range p.program {
		grows := 0 // per repeat
		for _, a := range segment.Body {
			stage, kind := a.Stage(), a.Kind()
			call := p.profile.stage(0, stage).call(schedule.F, p.plan, stage)
			if call == nil || !slices.ContainsFunc(call.Events, func(e RefChange) bool { return e.Op == Alloc }) {
				continue
			}
			if kind == schedule.F {
				grows++
			}
			if p.plan.Ends(stage, kind) {
				grows--
			}
		}
		if flight += grows * segment.Repeat; flight > p.limit {
			return true
		}
	}
	return false
}

// repeat runs the repeats of a segment.
func (p *player) repeat(s int) error {
	segment := &p.program[s]
	p.spans = append(p.spans, repeats{lead: segment.Repeat})
	if p.skip != nil {
		p.skip.beginSegment()
	}
	for r := 0; r < segment.Repeat; r++ {
		p.begin = p.count
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
	if span := &p.spans[s]; span.skipped == 0 {
		*span = repeats{lead: segment.Repeat}
	}
	return nil
}

// arrive sets the current position.
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

// act plays one action, with its effects in the order that package effects defines.
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
		switch place := left.First(); place {
		case effects.Part:
			err = p.dropParts(slot{place, -1, m}, e.Parts)
		case effects.Saved:
			if a.Kind() == schedule.WaitOffload {
				err = p.move(a.Kind(), s, m)
				break
			}
			err = p.events(&p.lent, nil, taken, origin{})
		case effects.Far: // see actFar
		case effects.ForwardWeights, effects.BackwardWeights:
			err = p.end(slot{place, s, -1})
		default:
			err = p.end(slot{place, s, m})
		}
		if err != nil {
			return err
		}
	}
	if e.Last {
		for place := effects.Part; place <= effects.Saved; place++ {
			delete(p.held, slot{place, s, m})
		}
	}
	return nil
}

// put holds allocations in a slot.
func (p *player) put(w slot, allocations []int32) {
	p.held[w] = contents{segment: p.at.segment, allocations: allocations}
}

// work plays the action itself: a call of its stage, or an incoming transfer. It returns the
// allocations that are handed over, and the ends of slots.
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
		if len(out) == 0 && kind != schedule.F { // there is no gradient in transit
			out = nil
		}
		return out, taken, err
	}
	p.put(slot{effects.BackwardWeights, s, m}, out[c.Forward:])
	return out[:c.Forward], nil, nil
}

// call plays the events of a call except the ends of its slots, which it returns.
func (p *player) call(t *StageProfile, c *Call, s, m int32) (out []int32, taken []RefChange, err error) {
	if _, begun := p.held[slot{effects.Saved, s, m}]; !begun {
		p.put(slot{effects.Saved, s, m}, unallocated(t.Buffers))
		if e, there := p.held[slot{effects.Part, -1, m}]; there {
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

// unallocated returns the list of allocations for the buffers of a profile before any is made:
// nothing for each, or resident.
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

// events plays changes of references.
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
	return 0, fmt.Errorf("%w: it refers to %v, which is not there", ErrProfile, ref)
}

// pull plays the source up to the entry with this index in the batch, and the look-ahead after it.
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

// receive plays an incoming transfer: a copy of every tensor that is present.
func (p *player) receive(kind schedule.Kind, s, m int32) (got []int32, err error) {
	o, list := origin{kind: ofInput, stage: s, microbatch: m}, []port(nil)
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
