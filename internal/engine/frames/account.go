package frames

import (
	"fmt"
	"strings"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
)

// account holds the frames' book and the result of comparing it with the allocator's book.
type account struct {
	live     int64          // bytes held by the frames
	classes  memory.ByClass // live, by class
	baseline memory.Stats   // the allocator's book at Begin
	peak     int64          // highest value of live in the running interval; only releases update it
	atPeak   memory.ByClass // peak, by class
	unfreed  int64          // bytes that drops failed to free, if there is no allocator's book
	excess   int64          // allocator's book - baseline - live, after the last action, for near and far memory together
	farLive  int64          // bytes held in far memory
	farWaits int64          // actions that waited for a copy to or from far memory
	leaked   int64          // excess that earlier steps left
	sampled  int64          // excess at the end of the last interval
	blamed   site           // the action that the last Audit blamed
	running  site           // the action that is running, or that ran last
	suspect  site           // the first action since the last audit after which the excess grew
	stats    memory.Stats   // scratch, so that Stats does not allocate
	farStats memory.Stats   // far memory's stats at the end of the last interval
	own      memory.Stats   // the frames' book as that of an allocator, at the end of the last interval
}

// Hold puts h into an empty cell and makes the frames its holder. It does not count buffers of
// lasting classes, such as a mask or a table of positions that a stage returns or saves: they
// exist before and after the step. If the space has a book, no other cell holds the buffer and
// its class is not allowed, Hold returns ErrClass, because both books would count the buffer in
// the wrong class.
func (c *Frames[T]) Hold(cell *Cell[T], h T, allowed classes) error {
	held, class, err := c.fused.HoldWithClass(h)
	if err != nil {
		return err
	}
	if held != 0 {
		if allowed>>class&1 == 0 && c.book != nil {
			_, _ = c.Config.Space.Unhold(h) // undoes the HoldWithClass above
			return fmt.Errorf("%w: %v, want one of %v", ErrClass, class, allowed)
		}
		if !class.Lasting() {
			c.account.live += held
			c.account.classes[class] += held
		}
	}
	cell.Handle, cell.State = h, Full
	if invariants.Enabled {
		delete(c.witness.cells, cell)
	}
	return nil
}

// classes is a set of memory classes.
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

// The classes of buffers that each place may hold. Hold does not check a buffer that another cell already
// holds. A Resident table or mask may be in any place; a gradient may be a saved tensor that a stage has
// moved out of its slot.
var (
	partClasses  = classesOf(memory.Entry, memory.Resident)
	SavedClasses = classesOf(memory.Saved, memory.Carry, memory.Activation, memory.ActGrad, memory.Entry, memory.Transfer, memory.FP8, memory.Resident)
	placeClasses = [effects.NumBufferKinds]classes{
		effects.Input: outputClasses, effects.SentOutput: outputClasses, effects.Output: outputClasses,
		effects.Gradient: gradientClasses, effects.SentGradient: gradientClasses,
		effects.ForwardWeights: classesOf(memory.FP8, memory.Resident), effects.BackwardWeights: classesOf(memory.FP8, memory.Resident),
		effects.Gathered: classesOf(memory.Unsharded, memory.Resident), effects.Accumulator: classesOf(memory.Unsharded, memory.Resident),
	}
	outputClasses   = classesOf(memory.Activation, memory.Transfer, memory.Resident)
	gradientClasses = classesOf(memory.ActGrad, memory.Transfer, memory.Saved, memory.Carry, memory.Resident)
)

// Unhold ends the frames' hold on h and returns the number of bytes that leave their book. The caller then
// owns the reference.
func (c *Frames[T]) Unhold(h T) (counted int64, err error) {
	unheld, err := c.Config.Space.Unhold(h)
	if err != nil || unheld == 0 { // another cell holds the buffer
		return 0, err
	}
	return c.uncount(unheld, c.Config.Space.Class(h)), nil
}

// uncount subtracts bytes that the frames no longer hold, and returns how many of them the book had
// counted: none if the class is lasting.
func (c *Frames[T]) uncount(unheld int64, class memory.Class) int64 {
	a := &c.account
	if unheld == 0 || class.Lasting() {
		return 0
	}
	if a.live > a.peak {
		a.peak, a.atPeak = a.live, a.classes
	}
	a.live -= unheld
	a.classes[class] -= unheld
	return unheld
}

// drop empties a cell: it ends the frames' hold and releases the reference. If the buffer should
// have been freed but was not, drop records the difference.
func (c *Frames[T]) drop(cell *Cell[T], stage int, place effects.BufferKind) error {
	unheld, freed, class, err := c.fused.UnholdAndRelease(cell.Handle)
	cell.End()
	if counted := c.uncount(unheld, class); err == nil && counted != 0 && counted != freed {
		c.account.unfreed += counted - freed
		c.addSuspect(stage, class, place)
	}
	return err
}

// stepwise implements memory.HoldReleaser with the separate calls of a space.
type stepwise[T any] struct{ memory.Space[T] }

func (s stepwise[T]) HoldWithClass(h T) (held int64, class memory.Class, err error) {
	if held, err = s.Hold(h); held != 0 {
		class = s.Class(h)
	}
	return held, class, err
}

func (s stepwise[T]) UnholdAndRelease(h T) (unheld, freed int64, class memory.Class, err error) {
	if unheld, err = s.Unhold(h); err != nil {
		return 0, 0, 0, err
	}
	class = s.Class(h)
	freed, err = s.Release(h)
	return unheld, freed, class, err
}

// Live returns the bytes that the frames hold.
func (c *Frames[T]) Live() int64 { return c.account.live }

// Excess returns the allocator's book minus the baseline and the frames' book, after the last
// action.
func (c *Frames[T]) Excess() int64 { return c.account.excess }

// Baseline returns the bytes that were live in the allocator's book when the step began.
func (c *Frames[T]) Baseline() int64 { return c.account.baseline.Live }

// Stats returns the allocator's current book, or zeros if there is none. The result is valid until the
// next call on the frames.
func (c *Frames[T]) Stats() *memory.Stats {
	if c.book != nil {
		c.book.Stats(&c.account.stats)
	}
	return &c.account.stats
}

// Interval holds the figures of the books for the time between the previous interval and the last Audit.
type Interval struct {
	// Near and Far are the allocators' books, valid until the next call on the frames. If the space has
	// no book, Near is the frames' own.
	Near, Far      *memory.Stats
	Excess, Growth int64       // bytes: the excess, with that of earlier steps, and its growth in the interval
	Leak           memory.Leak // zero unless Growth is positive and Audit has blamed a call
}

// EndInterval returns the interval that ends, and begins the next one.
func (c *Frames[T]) EndInterval() Interval {
	a := &c.account
	i := Interval{Near: &a.stats, Far: &a.farStats, Excess: a.leaked + a.excess, Growth: a.excess - a.sampled}
	if i.Growth > 0 && a.blamed.call != None {
		i.Leak = memory.Leak{Stage: a.blamed.stage, Name: c.newLeak(a.blamed).Name, Call: a.blamed.call.String(), Class: a.blamed.class}
	}
	a.sampled = a.excess
	if c.Far != nil {
		c.Far.Stats(&a.farStats)
		c.Far.ResetPeak()
	}
	if c.book != nil {
		c.book.ResetPeak()
		return i
	}
	if a.live > a.peak {
		a.peak, a.atPeak = a.live, a.classes
	}
	a.own = memory.Stats{Live: a.live, Peak: a.peak, Reserved: a.live, Classes: a.classes, PeakClasses: a.atPeak}
	a.peak, a.atPeak = a.live, a.classes
	i.Near = &a.own
	return i
}
