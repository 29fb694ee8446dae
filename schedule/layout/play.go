package layout

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// A player runs the program of one rank on a profile, as a runner runs it on buffers:
// it counts the same references and ends them in the same order.
type player struct {
	plan      *schedule.Plan
	profile   *Profile
	ports     *ports
	rank      int
	lookAhead int
	shapes    []int    // by microbatch, nil where there is one class
	wants     []uint64 // by copy of the model: the parts of entries that are read
	limit     int      // of births

	items    []item
	frames   map[frameKey]*frame
	outbox   map[frameKey]*box // of a stage and a microbatch
	entries  map[int32]*entry  // by microbatch
	gathered map[int32][]int32 // by stage
	copied   map[int32]copies  // of weights, by stage
	pulled   int               // entries, in the order of the batch

	at      spot
	ordinal int32 // of the next birth at the spot
	count   int32 // changes so far
	begin   int32 // changes before the repeat
	outputs []int32
	skip    *skipper    // nil: everything is played
	log     []int32     // the changes: the number of the item for a birth, its complement for an end
	visits  []visit     // the actions
	emit    func(int32) // nil, or is told every change as it is logged
	spans   []stretch   // by segment
	program []schedule.Segment
	top     *alive // what is alive at once, found out when it is asked for
}

// visit is an action, and the changes before it.
type visit struct {
	at    spot
	since int32
}

// frameKey names a microbatch of a stage. Microbatch -1 is of the stage alone.
type frameKey struct{ stage, microbatch int32 }

// frame is what a stage knows of one microbatch: the items that its profile refers to.
type frame struct {
	segment                 int32 // in which it began
	own, in, gradOut, parts []int32
}

// box is what a stage has sent of one microbatch and not waited for: its outputs, and
// the gradients of its inputs.
type box struct {
	segment int32 // in which it began
	out     [2][]int32
}

// copies are the copies of a stage's weights: those for the forward, and for the backward.
type copies struct{ forward, backward []int32 }

// entry is the entry of one microbatch.
type entry struct {
	segment int32
	wanted  uint64
	parts   []int32
}

// What is no item: a port without a tensor, and a buffer that was there before the step.
const (
	nothing  int32 = -1
	resident int32 = -2
)

// maxBirths is how many allocations of one rank are planned at most: those of a program
// of which every repeat differs.
const maxBirths = 1 << 20

func newPlayer(plan *schedule.Plan, profile *Profile, ports *ports, rank int, cfg *Config) *player {
	return &player{
		plan: plan, profile: profile, ports: ports, rank: rank, lookAhead: cfg.LookAhead, shapes: cfg.Shapes,
		wants: plan.Wanted(rank), limit: maxBirths, program: plan.Programs[rank],
		frames: map[frameKey]*frame{}, outbox: map[frameKey]*box{}, entries: map[int32]*entry{}, gathered: map[int32][]int32{},
		copied: map[int32]copies{},
	}
}

// play runs the program and what comes at step end.
func (p *player) play() error {
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
	return p.ended()
}

// repeat runs the repeats of a segment.
func (p *player) repeat(s int) error {
	segment := &p.program[s]
	p.spans = append(p.spans, stretch{lead: segment.Repeat})
	if p.skip != nil {
		p.skip.enter()
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
			r += p.skip.ended(p, segment, r)
		}
	}
	if span := &p.spans[s]; span.skipped == 0 {
		*span = stretch{lead: segment.Repeat}
	}
	return nil
}

// arrive says where the player is.
func (p *player) arrive(segment, repeat, index int) {
	p.at, p.ordinal = spot{int32(segment), int32(repeat), int32(index)}, 0
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

// act plays one action: the call of the stage, what it hands over, what dies.
func (p *player) act(a schedule.Action) error {
	s, m, kind := a.Stage(), a.Microbatch(), a.Kind()
	var taken []Event // the ends of slots
	var err error
	switch kind {
	case schedule.F:
		if err = p.pull(p.plan.Item(m)); err == nil {
			taken, err = p.compute(s, m, kind)
		}
	case schedule.B, schedule.I, schedule.W:
		taken, err = p.compute(s, m, kind)
	case schedule.RecvF:
		err = p.receive(s, m, kind)
	case schedule.RecvB:
		err = p.receive(s, m, kind)
	case schedule.Unshard:
		err = p.gather(s)
	case schedule.Reshard:
		err = p.endAll(p.gathered[int32(s)])
		delete(p.gathered, int32(s))
	case schedule.Quantize:
		err = p.quantize(s)
	case schedule.ReduceGrad:
		if t := p.profile.stage(0, s); t.Reduce != nil {
			_, _, err = p.call(p.frame(s, -1), t, t.Reduce, frameKey{int32(s), -1})
		}
	}
	if err == nil {
		err = p.drop(a, taken)
	}
	if err == nil && kind == schedule.F {
		err = p.endAll(p.outputs)
		p.outputs = nil
	}
	return err
}

// compute plays a call of a stage and hands over what it returns.
func (p *player) compute(s, m int, kind schedule.Kind) (taken []Event, err error) {
	t := p.profile.stage(p.shape(m), s)
	call := t.call(kind, p.plan.Mode)
	if call == nil {
		return nil, fmt.Errorf("%w: stage %d (%s) has no profile of %v", ErrProfile, s, t.Stage, kind)
	}
	key, f := frameKey{int32(s), int32(m)}, p.frame(s, m)
	if e := p.entries[key.microbatch]; e != nil {
		f.parts = e.parts
	}
	out, taken, err := p.call(f, t, call, key)
	if err != nil {
		return nil, err
	}
	switch kind {
	case schedule.F:
		switch {
		case p.plan.Placement.Last(s):
			p.outputs = out
		case p.plan.Placement.Rank[s+1] == p.rank:
			p.frame(s+1, m).in = out
		default:
			p.box(key).out[0] = out
		}
	case schedule.B, schedule.I:
		switch {
		case len(out) == 0 || p.plan.Placement.First(s):
		case p.plan.Placement.Rank[s-1] == p.rank:
			p.frame(s-1, m).gradOut = out
		default:
			p.box(key).out[1] = out
		}
	}
	return taken, nil
}

// call plays the events of a call but for the ends of its slots, which it returns.
func (p *player) call(f *frame, t *StageProfile, c *Call, key frameKey) (out []int32, taken []Event, err error) {
	if len(f.own) < len(t.Buffers) {
		f.own = slices.Grow(f.own, len(t.Buffers))
		for len(f.own) < len(t.Buffers) {
			f.own = append(f.own, nothing)
		}
	}
	for i, b := range t.Buffers {
		if b.Class == memory.Resident {
			f.own[i] = resident
		}
	}
	o := origin{kind: ofStage, stage: key.stage, microbatch: key.microbatch}
	if key.microbatch < 0 {
		o.kind = ofStageAlways
	}
	during := len(c.Events) - c.Taken
	if err := p.events(f, t.Buffers, c.Events[:during], o); err != nil {
		return nil, nil, err
	}
	out = make([]int32, len(c.Out))
	for i, ref := range c.Out {
		if out[i], err = p.resolve(f, ref); err != nil {
			return nil, nil, err
		}
	}
	return out, c.Events[during:], nil
}

// events plays changes of references.
func (p *player) events(f *frame, buffers []Buffer, events []Event, o origin) error {
	for _, e := range events {
		if e.Op == Alloc {
			if e.Ref.Kind != Own || e.Ref.Index < 0 || e.Ref.Index >= len(buffers) {
				return fmt.Errorf("%w: an allocation of %v", ErrProfile, e.Ref)
			}
			b := &buffers[e.Ref.Index]
			o.index = int32(e.Ref.Index)
			i, err := p.born(b.Bytes, b.AtMost, b.Class, o)
			if err != nil {
				return err
			}
			f.own[e.Ref.Index] = i
			continue
		}
		i, err := p.resolve(f, e.Ref)
		if err != nil {
			return err
		}
		if i < 0 {
			continue
		}
		if e.Op == Retain {
			p.items[i].refs++
		} else if err := p.release(i); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the item that a reference of a profile names.
func (p *player) resolve(f *frame, ref Ref) (int32, error) {
	var list []int32
	switch ref.Kind {
	case None:
		return nothing, nil
	case Own:
		list = f.own
	case In:
		list = f.in
	case GradOut:
		list = f.gradOut
	case PartRead:
		list = f.parts
	}
	if ref.Index < 0 || ref.Index >= len(list) || list[ref.Index] == nothing {
		return 0, fmt.Errorf("%w: it refers to %v, which is not there", ErrProfile, ref)
	}
	return list[ref.Index], nil
}

// frame returns the frame of a stage for a microbatch.
func (p *player) frame(s, m int) *frame {
	key := frameKey{int32(s), int32(m)}
	f := p.frames[key]
	if f == nil {
		f = &frame{segment: p.at.segment}
		p.frames[key] = f
	}
	return f
}

// box returns the outbox of a stage for a microbatch.
func (p *player) box(key frameKey) *box {
	b := p.outbox[key]
	if b == nil {
		b = &box{segment: p.at.segment}
		p.outbox[key] = b
	}
	return b
}

// pull plays the source up to an item, and the look-ahead beyond it.
func (p *player) pull(item int) error {
	all := p.plan.Microbatches
	for upto := min(item+min(p.lookAhead, all), all-1); p.pulled <= upto; p.pulled++ {
		m, wanted := p.plan.OfItem(p.pulled), p.wants[p.pulled%len(p.wants)]
		shape := &p.profile.Shapes[p.shape(m)]
		which := slices.IndexFunc(shape.Entries, func(e Entry) bool { return e.Parts == wanted })
		if which < 0 {
			if wanted == 0 {
				continue
			}
			return fmt.Errorf("%w: shape class %q has no entry for the parts %#b", ErrProfile, shape.Name, wanted)
		}
		e := &shape.Entries[which]
		f := &frame{own: make([]int32, len(e.Buffers))}
		for i := range f.own {
			f.own[i] = nothing
			if e.Buffers[i].Class == memory.Resident {
				f.own[i] = resident
			}
		}
		if err := p.events(f, e.Buffers, e.Events, origin{kind: ofEntry, stage: int32(which), microbatch: int32(m)}); err != nil {
			return err
		}
		if wanted == 0 {
			continue
		}
		held := &entry{segment: p.at.segment, wanted: wanted, parts: make([]int32, len(e.Out))}
		for part, ref := range e.Out {
			held.parts[part] = nothing
			if wanted>>part&1 == 1 {
				var err error
				if held.parts[part], err = p.resolve(f, ref); err != nil {
					return err
				}
			}
		}
		p.entries[int32(m)] = held
	}
	return nil
}

// entry returns the profile of an entry of which these parts are wanted.
func (s *Shape) entry(parts uint64) *Entry {
	for i := range s.Entries {
		if s.Entries[i].Parts == parts {
			return &s.Entries[i]
		}
	}
	return nil
}

// receive plays a transfer that comes in: a copy of every tensor there is.
func (p *player) receive(s, m int, kind schedule.Kind) error {
	var list []port
	var err error
	o := origin{kind: ofInput, stage: int32(s), microbatch: int32(m)}
	if kind == schedule.RecvF {
		list, err = p.ports.outputs(p.shape(m), s-1)
	} else {
		o.kind = ofGradient
		list, err = p.ports.gradients(p.shape(m), s+1)
	}
	if err != nil {
		return err
	}
	got := make([]int32, len(list))
	for i, port := range list {
		got[i] = nothing
		if port.bytes > 0 {
			o.index = int32(i)
			if got[i], err = p.born(port.bytes, port.atMost, memory.Transfer, o); err != nil {
				return err
			}
		}
	}
	if f := p.frame(s, m); kind == schedule.RecvF {
		f.in = got
	} else {
		f.gradOut = got
	}
	return nil
}

// gather plays UNSHARD.
func (p *player) gather(s int) error {
	t := p.profile.stage(0, s)
	if t.Gather == nil {
		return nil
	}
	out, taken, err := p.call(p.frame(s, -1), t, t.Gather, frameKey{int32(s), -1})
	if err == nil {
		err = p.events(p.frame(s, -1), t.Buffers, taken, origin{stage: int32(s), microbatch: -1})
	}
	p.gathered[int32(s)] = out
	return err
}

// quantize plays QUANTIZE.
func (p *player) quantize(s int) error {
	t := p.profile.stage(0, s)
	call := t.quantize(p.plan.HasBackward(s))
	if call == nil {
		return fmt.Errorf("%w: stage %d (%s) has no profile of %v", ErrProfile, s, t.Stage, schedule.Quantize)
	}
	out, _, err := p.call(p.frame(s, -1), t, call, frameKey{int32(s), -1})
	if err != nil {
		return err
	}
	p.copied[int32(s)] = copies{out[:call.Forward], out[call.Forward:]}
	return nil
}
