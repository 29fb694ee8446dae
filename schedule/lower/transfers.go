package lower

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// Transfers returns a plan with the same computations and with transfers between ranks, for links
// that hold up to capacity messages (Unlimited, or 0 for rendezvous):
//
//   - A send comes immediately after the computation that produces its message.
//   - A receive comes immediately before the computation that takes its message. Links are first in,
//     first out, so earlier messages on the link are received at the same point. If the sender
//     would otherwise wait at a full link, the receiver takes the oldest message before its current
//     computation.
//   - A wait comes before the second computation that the sender begins after the computation that
//     took the message has ended. Thus a receiver that is late by one computation does not delay
//     the sender. After the wait, the send's buffer is free.
//   - All receives of a joined pair come before the pair, and all its sends after it.
//
// With a capacity of 0, a plan for PyTorch posts receives when their messages are sent. If a plan for PyTorch
// reduces gradients and has no waits for that, Transfers also adds a wait for each reduction, before the rank's next
// reduction or at the end, because PyTorch requires a wait for everything that it starts.
//
// A clock determines the order of actions on different ranks. F, I and W take equally long, and B
// takes as long as I and W together. A rank without a backward is as slow as the busiest rank. With
// this clock and unlimited links, transfers never make a rank wait longer than it would in the plan
// without transfers. The clock defines a total order of all actions in which no link exceeds its
// capacity, so the plan does not deadlock, regardless of the costs of its actions.
//
// If the plan is invalid, Transfers returns the error of [check.Plan]. If the plan already has
// transfers or is too large and too irregular, or capacity is less than Unlimited, the error wraps
// ErrParams. The result has no
// drops. The cost depends on the size of the plan's segments, as for [check.Plan], and so does the
// size of the result, unless ranks drift further apart with every microbatch. This can happen if the
// ranks have unequal work and run all forwards, or all backwards, of a stage in a row.
func Transfers(plan *schedule.Plan, capacity int) (*schedule.Plan, error) {
	if capacity < schedule.Unlimited {
		return nil, diagnostic.Errorf(schedule.ErrParams, "a link cannot hold %d messages: use 0 or more, or %d for no limit", capacity, schedule.Unlimited)
	}
	c := programs(plan)
	if len(c.Faults) > 0 || c.Transfers || c.Marked {
		if err := c.Finish(schedule.Unlimited); err != nil {
			return nil, err
		}
	}
	if c.Transfers {
		return nil, diagnostic.Errorf(schedule.ErrParams, "plan %q already has transfers: use the plan without transfers", plan.Name)
	}
	lowered, err := transfer(plan, capacity)
	if err != nil {
		if invalid := c.Finish(schedule.Unlimited); invalid != nil { // the clock stops at a deadlock
			return nil, invalid
		}
	}
	return lowered, err
}

// Computations returns the plan without its transfers, so that other transfers can be added.
// The result has no drops.
func Computations(plan *schedule.Plan) *schedule.Plan {
	bare := rewritten(plan, func(body []schedule.Action) []schedule.Action {
		return slices.DeleteFunc(body, func(a schedule.Action) bool { return a.Kind() >= schedule.SendF && a.Kind() <= schedule.WaitB })
	})
	bare.Capacity = 0
	return bare
}

// ForRuntime returns the plan for the given runtime. If the plan has transfers for another runtime, ForRuntime
// replaces them with transfers for the given runtime and capacity, unless both are versions of PyTorch. It returns the
// errors of Transfers.
func ForRuntime(runtime schedule.Runtime, plan *schedule.Plan, capacity int) (*schedule.Plan, error) {
	if plan.Runtime == runtime {
		return plan, nil
	}
	if plan.Runtime.Posts() && runtime.Posts() {
		moved := *plan
		moved.Runtime = runtime
		return &moved, nil
	}
	if !plan.HasTransfers() {
		return move(plan, runtime), nil
	}
	return Transfers(move(Computations(plan), runtime), capacity)
}

// move returns the given plan, which must have no transfers, for another runtime. Plans for PyTorch have waits
// for all reductions, and plans for Weir only for those that free whole gradients.
func move(plan *schedule.Plan, to schedule.Runtime) *schedule.Plan {
	moved := *plan
	if has := plan.Kinds(); to == schedule.Weir && has[schedule.WaitReduce] && !has[schedule.ZeroGrad] {
		moved = *rewritten(plan, func(body []schedule.Action) []schedule.Action {
			return slices.DeleteFunc(body, func(a schedule.Action) bool { return a.Kind() == schedule.WaitReduce })
		})
	}
	moved.Runtime = to
	return &moved
}

// transfer returns the plan with transfers. The programs of the plan must be valid and have no
// transfers.
func transfer(plan *schedule.Plan, capacity int) (*schedule.Plan, error) {
	lowered := withoutDrops(plan)
	if has := plan.Kinds(); plan.Runtime.Posts() && has[schedule.ReduceGrad] && !has[schedule.WaitReduce] {
		lowered = lowered.Flat()
		for rank, program := range lowered.Programs {
			lowered.Programs[rank] = withWaits(program)
		}
	}
	o := passes.NewOutline(lowered)
	v := newLowering(&o, capacity)
	v.clock.Run(v)
	if at := slices.IndexFunc(v.clock.Ranks, func(p passes.Cursor) bool { return p.Segment < len(p.Program) }); at >= 0 {
		return nil, v.stopError(at)
	}
	if lowered.Programs = v.programs(); lowered.HasTransfers() {
		lowered.Capacity = capacity
	}
	return lowered, nil
}

// lowering is the visitor of a clock that writes the actions of the ranks, with transfers.
type lowering struct {
	clock      passes.Clock
	sets       *repeats.Sets // of the clock
	links      passes.Links
	plan       *schedule.Plan
	capacity   int
	in, out    [][]int // by rank: the links to the rank, and the links from it
	outbox     int     // the index of the outbox of rank 0, a queue in which messages stay fresh until their links have room; the queues before it are those of the links
	scripts    []script
	dispatched []bool // by rank: the rank's outbox was dispatched in this round
	ended      []bool // by rank, if receives are posted: a computation of the rank ended in this round
}

// Each edge has two sets of microbatches.
const (
	made    = iota // sent, and not yet taken by a computation
	early          // received, and not yet taken by a computation
	numSets = iota
)

func newLowering(o *passes.Outline, capacity int) *lowering {
	ranks := len(o.On)
	v := &lowering{links: passes.NewLinks(o), plan: o.Plan, capacity: capacity, in: make([][]int, ranks), out: make([][]int, ranks), scripts: make([]script, ranks), dispatched: make([]bool, ranks), ended: make([]bool, ranks)}
	for l := range v.links.From {
		v.out[v.links.From[l]] = append(v.out[v.links.From[l]], l)
		v.in[v.links.To[l]] = append(v.in[v.links.To[l]], l)
	}
	v.outbox = len(v.links.From)
	v.clock = passes.NewClock(o, numSets*len(v.links.Of), v.outbox+ranks)
	v.sets = v.clock.Sets
	if capacity != schedule.Unlimited {
		v.clock.Bounded = v.outbox
	}
	return v
}

// Ready reports whether a computation can begin. The messages for both computations of a joined pair
// must have been sent before the first one begins. A rank also waits until its outbox is empty.
func (v *lowering) Ready(rank int, a schedule.Action, mb int64) bool {
	if v.clock.Duties[rank].Action.Joined() {
		return true
	}
	if v.clock.Queues[v.outbox+rank].N[passes.Fresh] > 0 || !v.messageSent(a, mb) {
		return false
	}
	if !a.Joined() {
		return true
	}
	b := v.clock.Ranks[rank].Partner()
	return v.messageSent(b, int64(b.Microbatch()))
}

// messageSent reports whether the message that a computation takes has been sent. It returns true if
// the computation takes no message.
func (v *lowering) messageSent(a schedule.Action, mb int64) bool {
	edge := v.links.Takes(a)
	return edge < 0 || v.sets.Has(setOf(edge, made), mb)
}

// Act begins a computation or a joined pair.
func (v *lowering) Act(rank int, a schedule.Action, mb int64) {
	if v.clock.Duties[rank].Action.Joined() {
		return // the second action of a pair that has begun
	}
	for _, l := range v.out[rank] {
		q := &v.clock.Queues[l]
		for q.N[passes.Due] > 0 {
			v.Write(rank, passes.WaitFor(q.Pop(passes.Due)))
		}
		q.Pass(passes.Finished)
	}
	v.take(rank, a, mb)
	if !a.Joined() {
		v.compute(rank, a)
		return
	}
	b := v.clock.Ranks[rank].Partner()
	v.take(rank, b, int64(b.Microbatch()))
	v.compute(rank, a, b)
}

// take receives the message that a computation takes, unless it was received earlier, and all
// messages sent before it on the link.
func (v *lowering) take(rank int, a schedule.Action, mb int64) {
	wanted := v.links.Takes(a)
	if wanted < 0 {
		return
	}
	v.sets.Remove(setOf(wanted, made), mb)
	if v.sets.Remove(setOf(wanted, early), mb) {
		return
	}
	for {
		send := v.clock.Queues[v.links.Of[wanted]].Take()
		v.Write(rank, passes.ReceiptOf(send))
		if send == passes.Sent(wanted, mb) {
			return
		}
		v.sets.Add(setOf(passes.Edge(send), early), int64(send.Microbatch()))
	}
}

// compute writes the computation or joined pair that a rank begins now. Messages that have been sent to the
// rank before are no longer fresh.
func (v *lowering) compute(rank int, group ...schedule.Action) {
	for _, l := range v.in[rank] {
		v.clock.Queues[l].Pass(passes.Fresh)
	}
	v.scripts[rank].compute(group...)
}

// End ends a computation or a joined pair.
func (v *lowering) End(rank int, d passes.Duty) {
	if d.Action.Joined() {
		return
	}
	v.ended[rank] = v.postsReceives()
	for _, l := range v.in[rank] {
		v.clock.Queues[l].Pass(passes.Taken)
	}
	for _, a := range [...]schedule.Action{d.With, d.Action} {
		if out := v.links.Makes(a); out >= 0 {
			v.clock.Queues[v.outbox+rank].Push(passes.Sent(out, int64(a.Microbatch())))
		}
	}
}

// setOf returns the index of a set of an edge.
func setOf(edge, set int) int { return numSets*edge + set }

func (v *lowering) Write(rank int, a schedule.Action) {
	v.scripts[rank].write(a)
}

func (v *lowering) Begin() {
	for rank := range v.scripts {
		v.scripts[rank].begin(v.clock.Busy(rank))
	}
}

func (v *lowering) Repeats(n, stride int64) {
	for rank := range v.scripts {
		v.scripts[rank].repeat(int(n), int(stride), v.clock.Busy(rank))
	}
}

// programs returns the written programs, with the remaining waits at their ends.
func (v *lowering) programs() [][]schedule.Segment {
	programs := make([][]schedule.Segment, len(v.scripts))
	for rank := range v.scripts {
		s := &v.scripts[rank]
		for _, l := range v.out[rank] {
			for _, sends := range v.clock.Queues[l].Ranges() {
				const few = 8 // sends whose waits are written one by one
				s.flush()
				for i := range min(sends.N, few) {
					s.Append(passes.WaitFor(sends.Head.Shift(i * sends.Step)))
				}
				s.Repeat(s.Len()-1, max(sends.N-few, 0), sends.Step)
			}
		}
		s.flush()
		programs[rank] = s.Program()
	}
	return programs
}

// stopError returns the error for a clock that stopped before the end of a rank's program.
func (v *lowering) stopError(rank int) error {
	if v.sets.Exhausted {
		return diagnostic.Errorf(schedule.ErrParams, "plan %q is too large and too irregular to lower: use fewer microbatches, or a plan that repeats", v.plan.Name)
	}
	a, _ := v.clock.Ranks[rank].Action()
	return diagnostic.Errorf(check.ErrInvalidPlan, "%w: rank %d cannot run %v in plan %q", waitgraph.ErrDeadlock, rank, a, v.plan.Name)
}
