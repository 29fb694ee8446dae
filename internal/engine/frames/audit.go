package frames

import (
	"fmt"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
)

// site is an action, and the place of a handle, that may have caused a leak.
type site struct {
	known      bool
	stage      int
	microbatch int
	call       Call
	class      memory.Class
	place      effects.BufferKind // place of the leaked handle
	from, to   uint64             // the buffers allocated in the action, by serial number; empty if the space has no marks
}

// addSuspect records the running action as the suspect, unless there is one already.
func (c *Frames[T]) addSuspect(stage int, class memory.Class, place effects.BufferKind) {
	a := &c.account
	if !a.suspect.known {
		a.suspect = a.running
		a.suspect.to = c.position()
		a.suspect.known, a.suspect.stage, a.suspect.class, a.suspect.place = true, stage, class, place
	}
}

// position returns the allocator's position in the order of allocations, or 0 if it has no book or does not
// list its buffers, because no message then needs their order. (Calling Mark has an effect on a space without a
// book.)
func (c *Frames[T]) position() uint64 {
	if c.book == nil || c.reclaimer == nil || c.lister == nil {
		return 0
	}
	return c.reclaimer.Mark()
}

// UpdateExcess computes the excess after an action, and records the action as the suspect if the excess
// has grown and there is no suspect yet. Without a leak it only compares two numbers.
func (c *Frames[T]) UpdateExcess() {
	a := &c.account
	excess := a.unfreed
	if c.book != nil {
		excess = c.book.Live() - a.baseline.Live - a.live
	}
	if c.Far != nil {
		excess += c.Far.Live() - a.farLive
	}
	if excess == a.excess {
		return
	}
	if excess > a.excess {
		c.addSuspect(a.running.stage, c.worstClass(), effects.None)
	}
	a.excess = excess
}

// worstClass returns the class with the largest excess, or the suspect's class if the space has no
// book.
func (c *Frames[T]) worstClass() memory.Class {
	a := &c.account
	if c.book == nil {
		return a.suspect.class
	}
	c.book.Stats(&a.stats)
	worst, most := memory.Resident, int64(-1)
	for class := range memory.NumClasses {
		if d := a.stats.Classes[class] - a.baseline.Classes[class] - a.classes[class]; d > most {
			worst, most = memory.Class(class), d
		}
	}
	return worst
}

// Audit compares the two books, and the counts of live buffers with the plan's, after the last
// action of a microbatch (L6). The error is a *LeakError.
func (c *Frames[T]) Audit(plan Counts) error {
	c.UpdateExcess()
	c.Stats()
	if c.account.excess == 0 && c.counts == plan && c.classesAgree() {
		c.account.suspect = site{}
		return nil
	}
	return c.leakError(plan)
}

// classesAgree reports whether the two books, if there are two, were equal class by class at the
// last Stats. Differences in two classes can cancel out in the total.
func (c *Frames[T]) classesAgree() bool {
	a := &c.account
	for class := range a.classes {
		if c.book != nil && a.stats.Classes[class] != a.baseline.Classes[class]+a.classes[class] {
			return false
		}
	}
	return true
}

// AuditPlan compares the live bytes of the step after the last action with the memory plan (L6). They
// must equal planned, or be at most planned if atMost is set, because the plan is then an upper bound. The
// error is a *LeakError.
func (c *Frames[T]) AuditPlan(planned int64, atMost bool) error {
	a := &c.account
	live := a.live
	if c.book != nil {
		live = c.book.Live() - a.baseline.Live
	}
	if live == planned || atMost && live < planned {
		return nil
	}
	e := c.newLeak(a.running)
	e.Class, e.Bytes = memory.Saved, live-planned
	for class, bytes := range a.classes { // the class with the most bytes in the step
		if bytes > a.classes[e.Class] {
			e.Class = memory.Class(class)
		}
	}
	e.What = fmt.Sprintf("%d bytes of the step are live, but the memory plan has %d: the stages do not match their profile, record them again", live, planned)
	return e
}

// KnownLeak returns a *LeakError for the leak found since the last audit, or nil if there is none.
// The runner reports it if a planned address is still occupied.
func (c *Frames[T]) KnownLeak() error {
	c.UpdateExcess()
	if !c.account.suspect.known {
		return nil
	}
	return c.leakError(c.counts)
}

// leakError describes the difference that an audit has found between the books or the counts.
func (c *Frames[T]) leakError(plan Counts) error {
	a := &c.account
	where := a.suspect
	if !where.known {
		where = a.running
		where.class = memory.Saved
	}
	a.suspect, a.blamed = site{}, where
	c.Stats()
	e := c.newLeak(where)
	e.Bytes = a.excess
	switch {
	case c.Far != nil && c.Far.Live() != a.farLive:
		e.Class, e.What = memory.Saved, "in far memory, beyond the copies that the step holds"
	case a.excess > 0:
		e.What = c.blame(where)
	case a.excess < 0:
		e.What = "held by the step and freed elsewhere"
	case !c.classesAgree():
		e.Class = c.worstClass()
		e.Bytes = a.stats.Classes[e.Class] - a.baseline.Classes[e.Class] - a.classes[e.Class]
		e.What = "allocated but not held by the step, while as many bytes of another class were freed elsewhere, which hides it in the total"
	default:
		for place, have := range c.counts {
			if have != plan[place] {
				d := &counted[place]
				e.Class, e.What = d.class, fmt.Sprintf("%d %s are alive, but the plan has %d", have, d.what, plan[place])
				break
			}
		}
	}
	return e
}

// newLeak returns a LeakError that names the given site, without Bytes and What.
func (c *Frames[T]) newLeak(where site) *LeakError {
	e := &LeakError{Rank: c.Config.Rank, Stage: where.stage, Microbatch: c.indexOf(where.microbatch), Call: where.call, Class: where.class}
	if where.stage >= 0 && where.stage < len(c.stages) && c.stages[where.stage].Declaration != nil {
		e.Name = c.stages[where.stage].Name
	}
	return e
}

// counted describes what each element of Counts counts, and the class under which a difference is
// reported.
var counted = [effects.NumBufferKinds]struct {
	what  string
	class memory.Class
}{
	effects.Part: {"entry parts", memory.Entry}, effects.Saved: {"frames", memory.Saved},
	effects.Input: {"activations", memory.Activation}, effects.Gradient: {"gradients", memory.ActGrad},
	effects.SentOutput: {"transfers", memory.Transfer}, effects.SentGradient: {"transfers", memory.Transfer},
	effects.ForwardWeights: {"sets of copies of weights", memory.FP8}, effects.BackwardWeights: {"sets of copies of weights", memory.FP8},
	effects.Gathered: {"stages with gathered weights", memory.Unsharded}, effects.Accumulator: {"stages with whole gradients", memory.Unsharded}, effects.Output: {"outputs", memory.Activation},
	effects.Far: {"frames in far memory", memory.Saved},
}

// blame describes which holder may have kept a reference to a buffer that the step has released.
func (c *Frames[T]) blame(where site) string {
	name := func(stage int) string {
		if stage < 0 || stage >= len(c.stages) || c.stages[stage].Declaration == nil {
			return "its maker or the transport"
		}
		return fmt.Sprintf("stage %d (%s)", stage, c.stages[stage].Name)
	}
	switch where.place {
	case effects.Part:
		return "an entry part was released with this action and is still referenced, by the source or by a stage that read it"
	case effects.Input:
		return fmt.Sprintf("its input was released with this action and is still referenced, by %s, which returned it, or by this stage", name(where.stage-1))
	case effects.Gradient:
		return fmt.Sprintf("the gradient of its output was released with this action and is still referenced, by %s, which returned it, or by this stage", name(where.stage+1))
	case effects.Saved:
		return "a tensor it saved was released with this action and is still referenced, by this stage or by its producer"
	case effects.SentOutput, effects.SentGradient:
		return "a tensor it sent was released with this action and is still referenced, by this stage, which returned it, or by the transport"
	case effects.ForwardWeights, effects.BackwardWeights:
		return "the copies of its weights were released with this action and are still referenced by this stage, which made and read them"
	case effects.Gathered:
		return "its gathered weights were released with this action and are still referenced, by this stage or by the code that gathered them"
	case effects.Output:
		return "its output was released with this action and is still referenced by this stage"
	case passing:
		return "a tensor passed between its parts was released with this action and is still referenced by one of them"
	}
	return "allocated but neither released nor handed over: this action lost it, or kept a reference"
}

// LeakError reports a difference between the two books, or between the counts and the plan's. It names
// the action after which they first differed, and wraps ErrLeak.
type LeakError struct {
	Rank       int
	Stage      int    // -1 at step end, if the action is unknown
	Name       string // the stage's name
	Microbatch int
	Call       Call
	Class      memory.Class
	Bytes      int64  // allocator's book minus the frames', or live bytes minus planned ones; 0 if only counts differ
	What       string // description of the leaked buffers
}

// Error describes the leak in one line.
func (e *LeakError) Error() string {
	where := "at step end"
	if e.Stage >= 0 {
		where = fmt.Sprintf("stage %d (%s) microbatch %d", e.Stage, e.Name, e.Microbatch)
		if e.Call != None {
			where += " " + e.Call.String()
		}
	}
	return fmt.Sprintf("batchctx: leak: rank %d %s: %d bytes of class %v: %s", e.Rank, where, e.Bytes, e.Class, e.What)
}

// Unwrap returns ErrLeak.
func (e *LeakError) Unwrap() error { return ErrLeak }
