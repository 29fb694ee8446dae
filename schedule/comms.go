package schedule

import (
	"fmt"
	"slices"
)

// Comms returns a plan with the same computations that says what is sent and received,
// for links that hold up to so many messages (Unlimited, or 0 for rendezvous):
//
//   - A send stands right behind what makes its message.
//   - A receive stands right before what takes its message, and a link is first in,
//     first out: so what was sent on it before is received there as well. Where the
//     sender would stand at a full link meanwhile, the receiver takes the oldest message
//     before what it computes then.
//   - A wait stands before the second computation that its rank begins when what took
//     the message is over. Then the buffer of the send is free, and a receiver that is a
//     computation late by the clock does not hold the sender up.
//   - All receives of a joined pair stand before it and all sends behind it.
//
// What comes before what is decided by a clock, for which F, I and W take equally long
// and B takes both of its halves; a rank without any backward is as slow as the busiest.
// By that clock no rank stands at a transfer of unlimited links at which it would not
// stand without transfers. And there is one order of everything in which no link ever
// holds more than its capacity: so the plan does not block, whatever its actions cost.
//
// The plan must be valid: the error is that of Check where it is not. A plan that has
// transfers already, and a capacity below Unlimited, is ErrParams. Drops that the plan
// had are forgotten. As with Check the cost depends on the size of the plan as segments,
// and so does the size of what comes out, unless ranks drift apart without end, as those
// may that have unequal work and run all forwards, or all backwards, of a stage at once.
func Comms(plan *Plan, capacity int) (*Plan, error) {
	if capacity < Unlimited {
		return nil, fmt.Errorf("%w: a link for %d messages: it holds 0 or more, or any number (%d)", ErrParams, capacity, Unlimited)
	}
	c := &checker{name: plan.Name}
	c.checkShape(plan)
	c.programs(plan)
	if len(c.faults) > 0 || c.transfers || c.marked {
		if err := Check(plan); err != nil {
			return nil, err
		}
	}
	if c.transfers {
		return nil, fmt.Errorf("%w: plan %q has transfers already: give the plan that only computes", ErrParams, plan.Name)
	}
	lowered := withoutDrops(plan)
	o := newOutline(lowered)
	v := newLowering(&o, capacity)
	v.run(v)
	if at := slices.IndexFunc(v.ranks, func(p cursor) bool { return p.segment < len(p.program) }); at >= 0 {
		if err := Check(plan); err != nil { // ranks that wait for ever stop the clock
			return nil, err
		}
		return nil, v.stopped(at)
	}
	lowered.Programs = v.programs()
	return lowered, nil
}

// lowering is the visitor of a clock that writes down what the ranks do, with the
// transfers that it takes.
type lowering struct {
	clock
	links
	capacity int
	in, out  [][]int // by rank: its links
	outbox   int     // the queue of the first rank's outbox: what is to be sent, as soon as its link takes it
	scripts  []script
	asked    []bool // by rank: it was dispatched in this round
}

// Each edge has two sets of microbatches.
const (
	made    = iota // and taken by no computation yet
	early          // received, and taken by no computation yet
	numSets = iota
)

// Each link has five queues of sends, which every message goes through.
const (
	fresh     = iota // sent since the receiver began what it does
	ripe             // sent before, and not received
	taken            // received; what the receiver does then is not over
	over             // that is over
	due              // and the sender has begun something since: it waits before the next
	numQueues = iota
)

func newLowering(o *outline, capacity int) *lowering {
	ranks := len(o.on)
	v := &lowering{links: newLinks(o), capacity: capacity, in: make([][]int, ranks), out: make([][]int, ranks), scripts: make([]script, ranks), asked: make([]bool, ranks)}
	for l := range v.from {
		v.out[v.from[l]] = append(v.out[v.from[l]], l)
		v.in[v.to[l]] = append(v.in[v.to[l]], l)
	}
	v.outbox = numQueues * len(v.from)
	v.clock = newClock(o, numSets*len(v.of), v.outbox+ranks)
	for rank := range v.scripts {
		v.scripts[rank].list = make([]Action, 0, v.length(rank))
	}
	return v
}

// length returns how many actions a rank has with its transfers, each segment run once.
func (v *lowering) length(rank int) int {
	n := 0
	for _, s := range v.plan.Programs[rank] {
		for _, a := range s.Body {
			n++
			if v.takes(a) >= 0 {
				n++
			}
			if v.makes(a) >= 0 {
				n += 2
			}
		}
	}
	return n
}

// ready asks for both of a joined pair before the first of them. A rank that has
// something to send stands until it is sent.
func (v *lowering) ready(rank int, a Action, mb int64) bool {
	if v.duties[rank].action.Joined() {
		return true
	}
	if v.note(v.queues[v.outbox+rank].n > 0) || !v.there(a, mb) {
		return false
	}
	if !a.Joined() {
		return true
	}
	b := v.partner(rank)
	return v.there(b, int64(b.Microbatch()))
}

// there reports whether the message that a computation takes has been sent.
func (v *lowering) there(a Action, mb int64) bool {
	edge := v.takes(a)
	return edge < 0 || v.has(setOf(edge, made), mb)
}

// partner returns the action that the rank's next one, a joined one, overlaps with.
func (v *lowering) partner(rank int) Action {
	p := v.ranks[rank]
	p.advance()
	b, _ := p.action()
	return b
}

// act begins a computation, or a joined pair of them.
func (v *lowering) act(rank int, a Action, mb int64) {
	if v.duties[rank].action.Joined() {
		return // the second of a pair, which has begun
	}
	for _, l := range v.out[rank] {
		for v.queues[queueOf(l, due)].n > 0 {
			v.write(rank, waitFor(v.pop(queueOf(l, due))))
		}
		v.pass(l, over, due)
	}
	v.take(rank, a, mb)
	if !a.Joined() {
		v.compute(rank, a)
		return
	}
	b := v.partner(rank)
	v.take(rank, b, int64(b.Microbatch()))
	v.compute(rank, a, b)
}

// take receives the message that a computation takes, unless it is here already, and
// all that were sent on its link before it.
func (v *lowering) take(rank int, a Action, mb int64) {
	wanted := v.takes(a)
	if wanted < 0 {
		return
	}
	v.remove(setOf(wanted, made), mb)
	if v.remove(setOf(wanted, early), mb) {
		return
	}
	for {
		send := v.receive(v.of[wanted])
		v.write(rank, receiptOf(send))
		if v.note(send == sent(wanted, mb)) {
			return
		}
		v.add(setOf(edge(send), early), int64(send.Microbatch()))
	}
}

// receive takes the oldest message from its link.
func (v *lowering) receive(l int) (send Action) {
	oldest := ripe
	if v.note(v.queues[queueOf(l, ripe)].n == 0) {
		oldest = fresh
	}
	send = v.pop(queueOf(l, oldest))
	v.push(queueOf(l, taken), send)
	return send
}

// compute writes computations that begin now.
func (v *lowering) compute(rank int, group ...Action) {
	for _, l := range v.in[rank] {
		v.pass(l, fresh, ripe)
	}
	if !v.trial {
		v.scripts[rank].compute(group...)
	}
}

// end ends a computation, or a joined pair of them.
func (v *lowering) end(rank int, d duty) {
	if d.action.Joined() {
		return
	}
	for _, l := range v.in[rank] {
		v.pass(l, taken, over)
	}
	for _, a := range [...]Action{d.with, d.action} {
		if out := v.makes(a); out >= 0 {
			v.push(v.outbox+rank, sent(out, int64(a.Microbatch())))
		}
	}
}

// setOf returns the index of a set of an edge, queueOf that of a queue of a link.
func setOf(edge, set int) int     { return numSets*edge + set }
func queueOf(link, queue int) int { return numQueues*link + queue }

// pass moves all that is in a queue of a link to another one.
func (v *lowering) pass(l, from, to int) {
	a, b := &v.queues[queueOf(l, from)], &v.queues[queueOf(l, to)]
	if a.n > 0 && b.n == 0 && v.log == nil {
		*a, *b = *b, *a // all at once, where nobody asks what that did
	}
	for a.n > 0 {
		v.push(queueOf(l, to), v.pop(queueOf(l, from)))
	}
}

func (v *lowering) write(rank int, a Action) {
	if !v.trial {
		v.scripts[rank].write(a)
	}
}

func (v *lowering) begin() {
	for rank := range v.scripts {
		v.scripts[rank].begin(v.busy(rank))
	}
}

func (v *lowering) repeats(n, stride int64) {
	for rank := range v.scripts {
		v.scripts[rank].repeat(int(n), int(stride), v.busy(rank))
	}
}

// programs returns what is written, with the waits that are left.
func (v *lowering) programs() [][]Segment {
	programs := make([][]Segment, len(v.scripts))
	for rank := range v.scripts {
		s := &v.scripts[rank]
		for _, l := range v.out[rank] {
			for _, q := range []int{due, over, taken} {
				for _, sends := range v.queues[queueOf(l, q)].list() {
					s.times(waitFor(sends.head), sends.n, sends.step)
				}
			}
		}
		programs[rank] = s.end()
	}
	return programs
}

// stopped returns the error of a clock that has not come to the end of a rank.
func (v *lowering) stopped(rank int) error {
	if v.exhausted {
		return fmt.Errorf("%w: plan %q is too large and too irregular to lower: use fewer microbatches, or a plan that repeats", ErrParams, v.plan.Name)
	}
	a, _ := v.ranks[rank].action()
	return fmt.Errorf("%w: %w: rank %d cannot go on to %v in plan %q", ErrInvalidPlan, ErrDeadlock, rank, a, v.plan.Name)
}
