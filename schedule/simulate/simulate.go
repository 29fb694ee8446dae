package simulate

import (
	"math"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Run simulates a plan and reports its time and memory. The result is exact, because all times are
// integers.
//
// A rank runs its actions one after another, each as early as possible. The costs define the time
// of a computation and of a QUANTIZE. A joined pair starts when both actions can start, and its
// results are available at its end. All other actions take no time. A message goes on the wire when
// it is sent and its link is free, occupies the link for a time that depends on its size, and
// arrives one latency later. Neither the transmission nor the latency occupies a rank. A result
// that stays on its rank is available immediately.
//
// In a Weir plan with transfers, the capacity is the number of messages that a link holds, sent but
// not yet received. A send waits until there is room, a receive until its message arrives, and a
// wait until the message has been received. With capacity 0, a message goes on the wire when both its
// send and its receive have been reached, and both end when the message arrives. In a PyTorch plan
// no rank waits at a send or a receive, regardless of the capacity: a message goes on the wire when
// its send and its receive have been reached and are the first in their queues ([schedule.Queue]), and leaves
// both queues when it has been transmitted. The computation that takes the message waits until it arrives,
// as does the wait for its send. Without queues, all messages from one rank to another share one link. In a
// plan without transfers, every result is sent to the rank that needs it as soon as it is available, and links
// are unlimited regardless of the capacity.
//
// OFFLOAD and RELOAD start a copy of the stage's offloaded bytes. Each rank has one lane to far
// memory and one lane from it. A lane copies one buffer at a time, and copies do not occupy the rank.
// WAIT_OFFLOAD waits for its copy, and a computation waits for the reload of the state that it takes.
//
// REDUCE_GRAD and UNSHARD start an exchange with the same rank of the other replicas, which run the
// same plan at the same times. Each rank has one lane for reductions and one for gathers. A lane runs
// one exchange at a time, and exchanges do not occupy the rank. WAIT_REDUCE waits for its reduction,
// and a computation waits for the gathered weights of its stage.
//
// The live bytes depend only on the order of each program. Within an action, or a joined pair,
// allocations come before frees. A buffer keeps its class for its lifetime: [memory.Saved] from F to the
// actions that free it; [memory.Carry] from I to W; [memory.Activation] and [memory.ActGrad] from
// the action that returns them to the action on the same rank that reads them, or to the WAIT for
// their send, or to the send in a plan that does not wait; and [memory.Transfer] from the receive
// to the action that reads the message. For a runtime that keeps buffers ([schedule.Runtime.Keeps]), sent
// tensors stay live until the end of the step, and the receive buffers of all microbatches are live for the
// whole step. In a plan without transfers, a message to another rank is live only during the actions on both
// sides. [memory.FP8] covers the copies of weights, from QUANTIZE to the last action of the stage that reads
// them. Offloaded bytes of the saved state are not live from WAIT_OFFLOAD to RELOAD, and are in far memory
// from OFFLOAD to the action that takes the state. [memory.Unsharded] covers gathered weights, from UNSHARD
// to RESHARD, and whole gradients, from ZERO_GRAD to WAIT_REDUCE. Drop bits have no effect.
//
// The cost of simulating a long plan depends on the size of its segments, because Run skips repeats
// that are equal to previous ones, unless the costs of microbatches differ. Plans of up to 65,536 actions
// are always run in full and have a critical path; for longer plans, [Timeline] returns a critical path.
//
// The plan should be valid for the capacity, as decided by [check.Links]. For other plans, Run
// guarantees only that it terminates. If the ranks deadlock, it returns a [check.Error] that matches
// waitgraph.ErrDeadlock. Errors about the costs wrap ErrCosts, and errors about the capacity wrap
// [schedule.ErrParams].
func Run(plan *schedule.Plan, costs *Costs, capacity int) (*Report, error) {
	s, err := newSimulation(plan, costs, capacity, fullRun)
	if err != nil {
		return nil, err
	}
	return s.report()
}

// TimedAction is an action of a timeline.
type TimedAction struct {
	Rank     int
	Position int64 // the action's position in the rank's program, counting every repeat
	Action   schedule.Action
	// Start and End are the start and end times of the action. Those of a computation or a QUANTIZE exclude
	// its wait, and those of other actions include it. Both actions of a joined pair have the times of the pair.
	Start, End int64
	Live       memory.ByClass // the live bytes on the rank after the action, or after the joined pair
	Far        int64          // the bytes in the rank's far memory at the same time
	Copied     Interval       // for OFFLOAD, RELOAD, UNSHARD and REDUCE_GRAD: the time for which the copy or exchange occupies its lane
}

// Interval is the time from Start to End.
type Interval struct{ Start, End int64 }

// Timeline is like Run, but also calls visit for every action. The actions of a rank are visited in
// order; across ranks the order is deterministic, but not chronological. Timeline runs every repeat,
// and its report has a critical path.
func Timeline(plan *schedule.Plan, costs *Costs, capacity int, visit func(TimedAction)) (*Report, error) {
	s, err := newSimulation(plan, costs, capacity, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	s.visit = visit
	s.levels = make([]level, len(s.ranks))
	for rank := range s.levels {
		s.levels[rank] = s.level(rank, &RankReport{})
	}
	return s.report()
}

// fullRun is the maximum number of actions in a plan that is simulated without skipping repeats.
const fullRun = 1 << 16

// newSimulation returns a simulation at its start. It skips repeats if the plan has more than full
// actions and a segment with many repeats, and the costs of microbatches do not differ.
func newSimulation(plan *schedule.Plan, costs *Costs, capacity int, full int64) (*simulation, error) {
	c := &check.Checker{Name: plan.Name}
	if c.CheckShape(plan); len(c.Faults) > 0 {
		return nil, c.Err()
	}
	if capacity < schedule.Unlimited {
		return nil, diagnostic.Errorf(schedule.ErrParams, "capacity %d: it must be 0 or more, or %d for no limit", capacity, schedule.Unlimited)
	}
	if err := costs.fit(plan); err != nil {
		return nil, err
	}
	costs = costs.Uniform()
	s := &simulation{plan: plan, costs: costs, capacity: capacity, sizes: costs.sizesOf(plan)}
	var actions, flat int64
	for rank, program := range plan.Programs {
		actions += plan.Actions(rank)
		for i := range program {
			flat += program[i].Len()
		}
	}
	if flat > maxFlat {
		s.tooLarge()
		return nil, s.fault
	}
	s.plan = plan.Flat()
	o := passes.NewOutline(s.plan)
	s.outline = &o
	s.recordsDelays = actions <= full
	skipped := !s.recordsDelays && costs.Each == nil && s.sizes == nil
	if o.Allowance /= 4; !skipped {
		o.Allowance = maxSimulated
	}
	s.machine, s.links = passes.NewRoundRobin(&o, 0, 0), passes.NewLinks(&o)
	if queue := plan.Runtime.Queue(); queue == schedule.QueuePerRank || queue == schedule.QueuePerDirection {
		s.machine = passes.NewQueued(&o, nil, 0)
	}
	s.maxTime = min(maxCost, maxTotal/2/max(actions, 1))
	s.passages = s.newPassages()
	if !s.survey() {
		return nil, s.refusal()
	}
	s.reloaded = make([][]repeats.Runs, len(plan.Programs))
	for rank := range s.reloaded {
		var ok bool
		if s.reloaded[rank], ok = s.outline.Reloads(rank); !ok {
			s.tooLarge()
			return nil, s.fault
		}
	}
	s.prepare()
	if skipped && s.machine.Periodic {
		s.skips = &skips{s: s, hashes: make([]uint64, 2*maxCycle), waits: make([]waits, len(s.ranks)), boxes: make([]boxStart, len(s.boxes))}
	}
	return s, nil
}

// refusal returns the error for a plan that cannot be simulated: the error of [check.Links], if any.
func (s *simulation) refusal() error {
	capacity := s.capacity
	if s.posts() {
		capacity = schedule.Unlimited
	}
	if err := check.Links(s.plan, capacity); err != nil {
		return err
	}
	return diagnostic.Errorf(check.ErrInvalidPlan, "the plan has an action that cannot be simulated")
}

// report runs the simulation and returns its result.
func (s *simulation) report() (*Report, error) {
	if err := s.run(); err != nil {
		return nil, err
	}
	report := &Report{Ranks: make([]RankReport, len(s.ranks))}
	first, last := int64(math.MaxInt64), int64(0)
	for rank := range s.ranks {
		r, out := &s.ranks[rank], &report.Ranks[rank]
		s.peaks(rank, out)
		out.Busy = r.busy
		report.Ideal = max(report.Ideal, out.Busy)
		if !r.started {
			continue
		}
		out.First, out.Last, out.Communication, out.Copies = r.first, r.last, r.counted[waitWire], r.counted[waitCopied]
		report.Step = max(report.Step, s.addExchanges(rank, r, out))
		out.Wait = out.Last - out.First - out.Busy
		report.Span = max(report.Span, out.Last-out.First)
		first, last = min(first, out.First), max(last, out.Last)
	}
	report.Makespan = max(last-first, 0)
	if s.recordsDelays {
		report.Critical = s.critical()
	}
	return report, nil
}
