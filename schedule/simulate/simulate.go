package simulate

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Run simulates a plan and reports its time and its memory. The answer is exact: all times are
// whole numbers.
//
// A rank runs its actions one after the other, each as early as possible. A computation or a
// QUANTIZE takes its time of the costs. A joined pair starts when both can, and its results are
// available at its end. All other actions take no time. A message goes on the wire when it is
// sent and its link is free, occupies the link for its bytes, and arrives a latency later; neither
// occupies a rank. A result that stays on its rank is available at once.
//
// In a plan of Weir with transfers the capacity is the number of messages that a link holds, sent
// and not yet received: a send waits until there is room, a receive until its message arrives, a
// wait until the message was received. With capacity 0 a message goes on the wire when both its
// send and its receive have been reached, and both end when it arrives. In a plan of PyTorch no
// rank waits at a transfer, whatever the capacity: a message goes on the wire when its send and
// its receive have been reached, and the computation that takes it waits until it arrives. All
// messages from one rank to another share one link there. In a plan without transfers every
// result is sent to the rank that needs it as soon as it is available; the links of such a plan
// are unlimited, whatever the capacity.
//
// OFFLOAD and RELOAD start a copy of the stage's offloaded bytes. Each rank has a lane to far
// memory and a lane back, and each lane copies one buffer after the other; neither occupies the
// rank. WAIT_OFFLOAD waits for its copy, and a computation for the copy back of the state that it
// takes.
//
// Bytes follow the order of each program. Within an action, or a joined pair, allocations come
// before frees. The class of a buffer is its first one: [memory.Saved] from F to the actions that
// free it, [memory.Carry] from I to W, [memory.Activation] and [memory.ActGrad] from the action
// that returns them to the one on the same rank that reads them, or to the WAIT for the send (to
// the send in a plan that does not wait), [memory.Transfer] from the receive to the action that
// reads it. In a plan without transfers a message to another rank is live during the actions on
// both sides and not between them. [memory.FP8] are the copies of weights, from QUANTIZE to the
// last action of the stage that reads them. Offloaded bytes of the saved state are not live from
// WAIT_OFFLOAD to RELOAD, and are in far memory from OFFLOAD to the action that takes the state. Drop
// bits have no effect.
//
// The cost of a long plan depends on its size as segments: repeats like those before them are
// skipped. Plans of up to 65,536 actions are always run in full and have a critical path; longer
// plans have one from [Timeline].
//
// The plan should be one that [check.Plan] accepts, for the same capacity. For other plans Run
// guarantees only that it ends. A deadlock is a [check.Error] that is ErrDeadlock, with the words
// of Check. Errors about the costs wrap ErrCosts, errors about the capacity ErrParams.
func Run(plan *schedule.Plan, costs *Costs, capacity int) (*Report, error) {
	s, err := newSimulation(plan, costs, capacity, fullRun)
	if err != nil {
		return nil, err
	}
	return s.report()
}

// Event is an action of a timeline.
type Event struct {
	Rank     int
	Position int64 // in the rank's program, each repeat counted
	Action   schedule.Action
	// Start and End are the time of the action; of an action that waits, the time of the wait; of
	// both actions of a joined pair, the time of the pair.
	Start, End int64
	Live       memory.ByClass // bytes on the rank after it, or after the joined pair
	Far        int64          // bytes in the rank's far memory then
	Copied     Interval       // of OFFLOAD and RELOAD: when the lane copies, which the rank does not wait for
}

// Interval is the time from Start to End.
type Interval struct{ Start, End int64 }

// Timeline is Run, and calls visit for every action: in their order for the actions of a rank, and
// in a fixed order, which is not that of time, across ranks. It runs every repeat, and its report
// has a critical path.
func Timeline(plan *schedule.Plan, costs *Costs, capacity int, visit func(Event)) (*Report, error) {
	s, err := newSimulation(plan, costs, capacity, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	s.visit = visit
	s.visited = make([]level, len(s.ranks))
	for rank := range s.visited {
		s.visited[rank] = s.level(rank, &RankReport{})
	}
	return s.report()
}

// fullRun is the most actions of a plan that is simulated without skipping repeats.
const fullRun = 1 << 16

// newSimulation returns a simulation of which nothing has run. It skips repeats if the plan has
// more actions than full.
func newSimulation(plan *schedule.Plan, costs *Costs, capacity int, full int64) (*simulation, error) {
	c := &check.Checker{Name: plan.Name}
	if c.CheckShape(plan); len(c.Faults) > 0 {
		return nil, c.Err()
	}
	if capacity < schedule.Unlimited {
		return nil, fmt.Errorf("%w: capacity %d: it must be 0 or more, or %d for no limit", schedule.ErrParams, capacity, schedule.Unlimited)
	}
	if err := costs.fit(plan); err != nil {
		return nil, err
	}
	s := &simulation{plan: plan, costs: costs, capacity: capacity}
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
	s.chains = actions <= full
	skipped := !s.chains && costs.Each == nil
	if o.Allowance /= 4; !skipped {
		o.Allowance = maxSimulated
	}
	s.RoundRobin, s.links = passes.NewRoundRobin(&o, 0, 0), passes.NewLinks(&o)
	s.longest = min(maxCost, maxTotal/2/max(actions, 1))
	s.passages = s.newPassages()
	if !s.survey() {
		return nil, s.refusal()
	}
	s.reloaded = make([][]repeats.Runs, len(plan.Programs))
	for rank := range s.reloaded {
		var ok bool
		if s.reloaded[rank], ok = s.Reloads(rank); !ok {
			s.tooLarge()
			return nil, s.fault
		}
	}
	s.prepare()
	if skipped && s.Periodic {
		s.skips = newSkips(s)
	}
	return s, nil
}

// refusal returns the error for a plan that cannot be simulated, in the words of Check.
func (s *simulation) refusal() error {
	if err := check.Links(s.plan, s.capacity); err != nil {
		return err
	}
	return fmt.Errorf("%w: it has an action that cannot be simulated", check.ErrInvalidPlan)
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
		out.Busy = s.busy(rank)
		report.Ideal = max(report.Ideal, out.Busy)
		if !r.started {
			continue
		}
		out.First, out.Last, out.Communication = r.first, r.last, r.counted
		out.Wait = out.Last - out.First - out.Busy
		report.Span = max(report.Span, out.Last-out.First)
		first, last = min(first, out.First), max(last, out.Last)
	}
	report.Makespan = max(last-first, 0)
	if s.chains {
		report.Critical = s.critical()
	}
	return report, nil
}

// busy returns the time that a rank computes.
func (s *simulation) busy(rank int) int64 {
	var total int64
	if s.costs.Each != nil {
		for a := range s.plan.All(rank) {
			if d := s.costOf(a); d.does == doCompute {
				total += s.alone(d, a)
			}
		}
		return total
	}
	for _, segment := range s.plan.Programs[rank] {
		var body int64
		for i, a := range segment.Body {
			switch {
			case a.Joined():
				body += s.together(a, segment.Body[i+1])
			case i == 0 || !segment.Body[i-1].Joined():
				body += s.costOf(a).time
			}
		}
		total += body * int64(segment.Repeat)
	}
	return total
}
