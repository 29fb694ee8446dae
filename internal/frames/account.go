package frames

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/memory"
)

// account is the frames' book and the result of its comparison with the allocator's.
type account struct {
	live     int64 // bytes held by the frames
	classes  memory.ByClass
	baseline memory.Stats   // the allocator's book at Begin
	peak     int64          // highest live since the last sample, noted before a release
	atPeak   memory.ByClass // peak by class
	unfreed  int64          // without an allocator's book: bytes that a drop should have freed but did not
	excess   int64          // allocator's book - baseline - live, after the last action, in both memories
	far      int64          // bytes held in far memory
	waits    int64          // actions that waited for a copy to or from far memory
	sampled  int64          // excess at the last sample
	running  suspect        // the action that runs or ran last
	suspect  suspect        // the first action since the last audit after which the difference grew
	stats    memory.Stats   // scratch, so that Stats never escapes per call
	farStats memory.Stats   // of far memory at the last sample
}

// suspect is an action that may have caused a leak.
type suspect struct {
	known      bool
	stage      int
	microbatch int
	call       Call
	class      memory.Class
	place      effects.Place // of the leaked handle
}

// Hold makes the frames a holder of h in an empty cell. Buffers of lasting classes, such as a mask
// or a table of positions that a stage returns or saves, exist before and after the step, so that
// Hold does not count them. If the place does not allow the class, Hold returns an error, because
// every book would count the buffer in the wrong class.
func (c *Frames[T]) Hold(to *Cell[T], h T, allowed classes) error {
	held, class, err := c.fused.Enter(h)
	if err != nil {
		return err
	}
	if held != 0 {
		if allowed>>class&1 == 0 && c.book != nil {
			_, _ = c.Space.Yield(h) // undoes the Enter above
			return fmt.Errorf("%w: %v, want one of %v", ErrClass, class, allowed)
		}
		if !class.Lasting() {
			c.live += held
			c.classes[class] += held
		}
	}
	to.Handle, to.State = h, Full
	return nil
}

// classes is a set of classes of memory.
type classes uint16

func classesOf(list ...memory.Class) (set classes) {
	for _, class := range list {
		set |= 1 << class
	}
	return set
}

// String lists the classes.
func (s classes) String() string {
	var names []string
	for class := range memory.NumClasses {
		if s>>class&1 == 1 {
			names = append(names, memory.Class(class).String())
		}
	}
	return strings.Join(names, ", ")
}

// The classes of buffers that each place may hold, if nothing in the step holds them yet. A
// Resident table or mask may be in any place; a gradient may be a saved tensor that was moved
// out.
var (
	partClasses  = classesOf(memory.Entry, memory.Resident)
	SavedClasses = classesOf(memory.Saved, memory.Carry, memory.Activation, memory.ActGrad, memory.Entry, memory.Transfer, memory.FP8, memory.Resident)
	placeClasses = [effects.NumPlaces]classes{
		effects.Input: outputClasses, effects.SentOutput: outputClasses, effects.Output: outputClasses,
		effects.Gradient: gradientClasses, effects.SentGradient: gradientClasses,
		effects.ForwardWeights: classesOf(memory.FP8, memory.Resident), effects.BackwardWeights: classesOf(memory.FP8, memory.Resident),
		effects.Gathered: classesOf(memory.Unsharded, memory.Resident), effects.Accumulator: classesOf(memory.Unsharded, memory.Resident),
	}
	outputClasses   = classesOf(memory.Activation, memory.Transfer, memory.Resident)
	gradientClasses = classesOf(memory.ActGrad, memory.Transfer, memory.Saved, memory.Carry, memory.Resident)
)

// Yield ends the frames' hold of h and returns the bytes that they had counted for it. The caller
// owns the reference.
func (c *Frames[T]) Yield(h T) (counted int64, err error) {
	yielded, err := c.Space.Yield(h)
	if err != nil || yielded == 0 { // another holder in the step remains
		return 0, err
	}
	return c.uncount(yielded, c.Space.Class(h)), nil
}

// uncount removes bytes that the frames no longer hold from the book, and returns the number of
// bytes that the book had counted.
func (c *Frames[T]) uncount(yielded int64, class memory.Class) int64 {
	if yielded == 0 || class.Lasting() {
		return 0
	}
	if c.live > c.peak {
		c.peak, c.atPeak = c.live, c.classes
	}
	c.live -= yielded
	c.classes[class] -= yielded
	return yielded
}

// drop releases a cell: it ends the frames' hold and the reference. It records bytes that should
// have been freed but were not.
func (c *Frames[T]) drop(from *Cell[T], stage int, place effects.Place) error {
	yielded, freed, class, err := c.fused.Leave(from.Handle)
	from.End()
	if counted := c.uncount(yielded, class); err == nil && counted != 0 && counted != freed {
		c.unfreed += counted - freed
		c.suspectNow(stage, class, place)
	}
	return err
}

// unfused implements memory.Fused with the separate calls of a space.
type unfused[T any] struct{ memory.Space[T] }

func (s unfused[T]) Enter(h T) (held int64, class memory.Class, err error) {
	if held, err = s.Hold(h); held != 0 {
		class = s.Class(h)
	}
	return held, class, err
}

func (s unfused[T]) Leave(h T) (yielded, freed int64, class memory.Class, err error) {
	if yielded, err = s.Yield(h); err != nil {
		return 0, 0, 0, err
	}
	class = s.Class(h)
	freed, err = s.Release(h)
	return yielded, freed, class, err
}

// suspectNow records the running action as the cause of a leak, or as the action after which the
// leak was found.
func (c *Frames[T]) suspectNow(stage int, class memory.Class, place effects.Place) {
	if !c.suspect.known {
		c.suspect = c.running
		c.suspect.known, c.suspect.stage, c.suspect.class, c.suspect.place = true, stage, class, place
	}
}

// Settle compares the books after an action. Without a leak this compares two numbers.
func (c *Frames[T]) Settle() {
	excess := c.unfreed
	if c.book != nil {
		excess = c.book.Live() - c.baseline.Live - c.live
	}
	if c.Far != nil {
		excess += c.Far.Live() - c.far
	}
	if excess == c.excess {
		return
	}
	if excess > c.excess {
		c.suspectNow(c.running.stage, c.worstClass(), effects.None)
	}
	c.excess = excess
}

// worstClass returns the class in which the allocator's book exceeds the frames' by most.
func (c *Frames[T]) worstClass() memory.Class {
	if c.book == nil {
		return c.suspect.class
	}
	c.book.Stats(&c.stats)
	worst, most := memory.Resident, int64(-1)
	for class := range memory.NumClasses {
		if d := c.stats.Classes[class] - c.baseline.Classes[class] - c.classes[class]; d > most {
			worst, most = memory.Class(class), d
		}
	}
	return worst
}

// Live returns the bytes that the frames hold.
func (c *Frames[T]) Live() int64 { return c.live }

// Excess returns the allocator's book minus the baseline and the frames' book,
// after the last action.
func (c *Frames[T]) Excess() int64 { return c.excess }

// Audit compares the two books, and the counts of live buffers with the plan's, after the last
// action of a microbatch (L6). The error is a *LeakError.
func (c *Frames[T]) Audit(plan Counts) error {
	c.Settle()
	c.Stats()
	if c.excess == 0 && c.counts == plan && c.classesAgree() {
		c.suspect = suspect{}
		return nil
	}
	return c.leak(plan)
}

// AuditPlan compares the live bytes of the step after the last action with the memory plan. They
// must be equal to planned, or at most planned if most is set, because the plan is for several
// shapes (L6). The error is a *LeakError.
func (c *Frames[T]) AuditPlan(planned int64, most bool) error {
	live := c.live
	if c.book != nil {
		live = c.book.Live() - c.baseline.Live
	}
	if live == planned || most && live < planned {
		return nil
	}
	e := c.leakIn(c.running)
	e.Class, e.Bytes = memory.Saved, live-planned
	for class, bytes := range c.classes { // the class with the most bytes in the step
		if bytes > c.classes[e.Class] {
			e.Class = memory.Class(class)
		}
	}
	e.What = fmt.Sprintf("%d bytes of the step are live, but the memory plan has %d: the stages do not match their profile, record them again", live, planned)
	return e
}

// leakIn returns the error for a leak in a call or an action.
func (c *Frames[T]) leakIn(where suspect) *LeakError {
	e := &LeakError{Rank: c.Config.Rank, Stage: where.stage, Microbatch: c.itemOf(where.microbatch), Call: where.call, Class: where.class}
	if where.stage >= 0 && where.stage < len(c.stages) && c.stages[where.stage].Declaration != nil {
		e.Name = c.stages[where.stage].Name
	}
	return e
}

// Lost returns the leak that explains why a planned place is still occupied: a *LeakError that
// wraps ErrLeak, or nil if the books have not found one.
func (c *Frames[T]) Lost() error {
	c.Settle()
	if !c.suspect.known {
		return nil
	}
	return c.leak(c.counts)
}

// Baseline returns the bytes that were live in the allocator's book when the step
// began.
func (c *Frames[T]) Baseline() int64 { return c.baseline.Live }

// classesAgree reports whether the two books, if there are two, were equal class by class at the
// last Stats. Differences of two classes can cancel in the total.
func (c *Frames[T]) classesAgree() bool {
	for class := range c.classes {
		if c.book != nil && c.stats.Classes[class] != c.baseline.Classes[class]+c.classes[class] {
			return false
		}
	}
	return true
}

// leak describes a difference of the books or counts.
func (c *Frames[T]) leak(plan Counts) error {
	where := c.suspect
	if !where.known {
		where = c.running
		where.class = memory.Saved
	}
	c.suspect = suspect{}
	c.Stats()
	e := c.leakIn(where)
	e.Bytes = c.excess
	switch {
	case c.Far != nil && c.Far.Live() != c.far:
		e.Class, e.What = memory.Saved, "in far memory, beyond the copies that the step holds"
	case c.excess > 0:
		e.What = c.blame(where)
	case c.excess < 0:
		e.What = "held by the step and freed elsewhere"
	case !c.classesAgree():
		e.Class = c.worstClass()
		e.Bytes = c.stats.Classes[e.Class] - c.baseline.Classes[e.Class] - c.classes[e.Class]
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

// counted holds a noun for each count of Counts, and the class in which a difference is reported.
var counted = [effects.NumPlaces]struct {
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
func (c *Frames[T]) blame(where suspect) string {
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
		return "what it saved was released with this action and is still referenced, by this stage or by its producer"
	case effects.SentOutput, effects.SentGradient:
		return "what it sent was released with this action and is still referenced, by this stage, which returned it, or by the transport"
	case effects.ForwardWeights, effects.BackwardWeights:
		return "the copies of its weights were released with this action and are still referenced by this stage, which made and read them"
	case effects.Gathered:
		return "its gathered weights were released with this action and are still referenced, by this stage or by what gathered them"
	case effects.Output:
		return "its output was released with this action and is still referenced by this stage"
	case passing:
		return "what passed between its parts was released with this action and is still referenced by one of them"
	}
	return "allocated but neither released nor handed over: this action lost it, or kept a reference"
}

// Stats returns the allocator's current book, or zeros if there is none. It is valid until the
// next call of the frames.
func (c *Frames[T]) Stats() *memory.Stats {
	if c.book != nil {
		c.book.Stats(&c.stats)
	}
	return &c.stats
}

// Sample fills in the frames' numbers for the memory log, as of the preceding Audit, and starts the
// next interval. Without an allocator's book it uses the frames' own book.
func (c *Frames[T]) Sample(s *memory.Sample) {
	s.Step, s.Rank = c.Step, c.Config.Rank
	s.Replica, s.Replicated = c.Config.Replica, c.Config.Replicas > 1
	s.Excess, s.Growth = c.excess, c.excess-c.sampled
	c.sampled = c.excess
	if c.Far != nil {
		c.Far.Stats(&c.farStats)
		c.Far.ResetPeak()
	}
	s.Far, s.FarPeak = c.farStats.Live, c.farStats.Peak
	if c.book == nil {
		s.Live, s.Peak, s.Reserved, s.Classes, s.PeakClasses = c.live, c.peak, c.live, c.classes, c.atPeak
		if c.live > c.peak {
			s.Peak, s.PeakClasses = c.live, c.classes
		}
		c.peak, c.atPeak = c.live, c.classes
		return
	}
	s.Live, s.Peak, s.Reserved, s.Classes, s.PeakClasses = c.stats.Live, c.stats.Peak, c.stats.Reserved, c.stats.Classes, c.stats.PeakClasses
	c.book.ResetPeak()
}

// Owners iterates over the buffers that the step holds now, each with the name of its owner and
// purpose, for the dump after a failure and before Abort.
func (c *Frames[T]) Owners() iter.Seq[memory.Info] {
	return func(yield func(memory.Info) bool) {
		more := func(cells []Cell[T], name func(i int) string) bool {
			for i := range cells {
				if h := cells[i].Handle; cells[i].Held() && !yield(memory.Info{Name: name(i), Class: c.Space.Class(h), Bytes: c.Space.Bytes(h), Held: 1}) {
					return false
				}
			}
			return true
		}
		if !more(c.entries, func(i int) string {
			return fmt.Sprintf("microbatch %d: entry part %q", c.itemOf(c.entryOf[i/len(c.Parts)]), c.Parts[i%len(c.Parts)])
		}) {
			return
		}
		for s := range c.stages {
			st := &c.stages[s]
			for i := range st.cells {
				frame, n := i/st.width, i%st.width
				what, slot := fmt.Sprintf("input %d", n), n-st.Inputs-st.Outputs
				if slot >= 0 {
					what = fmt.Sprintf("slot %q", st.Slots[slot])
				} else if n >= st.Inputs {
					what = fmt.Sprintf("gradient of output %d", n-st.Inputs)
				}
				microbatch := "(before its forward)"
				if f := &st.frames[frame]; f.open {
					microbatch = strconv.Itoa(c.itemOf(f.microbatch))
				}
				name := fmt.Sprintf("microbatch %s: stage %d (%s): %s", microbatch, s, st.Name, what)
				if !more(st.cells[i:i+1], func(int) string { return name }) || !c.farOwner(st, frame, slot, name, yield) {
					return
				}
			}
			if !more(st.outbox.cells, func(i int) string { return st.outbox.owner(i, s, st.Name) }) ||
				!more(st.shards, func(i int) string {
					return fmt.Sprintf("stage %d (%s): gathered weight of %q", s, st.Name, st.Params[i].Name)
				}) ||
				!more(st.grads, func(i int) string {
					return fmt.Sprintf("stage %d (%s): whole gradient of %q", s, st.Name, st.Params[i].Name)
				}) ||
				!more(st.copies, func(i int) string { return fmt.Sprintf("stage %d (%s): %v", s, st.Name, st.WeightCopies[i]) }) {
				return
			}
		}
	}
}

// itemOf returns a microbatch's number in the batch, or -1 for no microbatch.
func (c *Frames[T]) itemOf(microbatch int) int {
	if microbatch < 0 {
		return microbatch
	}
	return c.Index(c.extent.Item(microbatch))
}
