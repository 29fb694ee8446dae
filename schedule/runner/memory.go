package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/internal/engine/offload"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// stepMemory is the memory of a rank's steps, if it is planned.
type stepMemory[T any] struct {
	planned   memory.Planned      // the rank's space; nil if it is not planned
	unordered memory.Reorderer[T] // the same space; nil if planned is nil, or the space is not a Reorderer
	far       *offload.Memory[T]  // nil until a step offloads
	levels    levels
	parts     []int // scratch: the parts of an entry in the order of their plan
	buffers   []T   // scratch: an entry's buffers in the order of their plan
}

// levels holds the running step's places in the layouts of its rank.
type levels struct {
	near, far level // the levels of the rank's space and of its far memory
	atMost    bool  // the layouts are upper bounds
	top       int64 // the highest level of near in the step
}

// level is the current place in a layout. The level of a place is the number of bytes that are live at the place.
type level struct {
	layout *memory.Layout // nil if the memory is not planned
	base   int            // the place of the first action in the running repeat of a segment
	place  int
	peak   int64 // the highest level since the last sample
}

// enter sets the base to the first action in a repeat of a segment.
func (l *level) enter(segment, repeat int) {
	if l.layout != nil {
		l.base = l.layout.Segments[segment].Base(repeat)
	}
}

// move sets the place to k actions after the base, if the memory is planned. It reports whether it is.
func (l *level) move(k int) bool {
	if l.layout == nil {
		return false
	}
	l.place = l.base + k
	l.peak = max(l.peak, l.layout.Levels[l.place].Peak)
	return true
}

// live returns the level at the end of the place.
func (l *level) live() int64 { return l.layout.Levels[l.place].Live }

// plansMemory reports whether the step plans memory of this rank. It plans far memory if it offloads,
// and near memory if the space implements memory.Planned. An evaluation with Outputs is not planned,
// because the caller owns the outputs indefinitely.
func (r *worker[T]) plansMemory(plan *planned) bool {
	if r.memory.planned == nil {
		return plan.offloads && r.cfg.Memory.Profile != nil && !r.cfg.Memory.TolerateLeaks
	}
	return plan.Mode == schedule.Training || r.cfg.Outputs == nil
}

// shapes returns the shape classes of the microbatches of the rank's plan, or nil if shaped is nil.
func (r *worker[T]) shapes(plan *schedule.Plan, b *batch, shaped Shaped) []int {
	if shaped == nil {
		return nil
	}
	shapes := make([]int, plan.Microbatches)
	for m := range shapes {
		shapes[m] = shaped.Shape(b.index(r.replica, plan.BatchIndex(m)))
	}
	return shapes
}

// shaped returns the rank's source if it is Shaped, or else nil.
func (r *worker[T]) shaped(source Source[T]) Shaped {
	shaped, _ := ofRank(source, r.global-r.cfg.Topology.First).(Shaped)
	return shaped
}

// lay reserves the memory of the step on this rank.
func (r *worker[T]) lay(plan *program) error {
	r.memory.levels = levels{}
	if plan.memory == nil || !r.plansMemory(plan.planned) {
		if plan.offloads {
			return fmt.Errorf("%w: the plan offloads saved state: set Memory.Profile, and not TolerateLeaks", ErrPlan)
		}
		return nil
	}
	near, far := plan.memory.Layouts(r.calls.Rank)
	if r.memory.planned != nil {
		if err := r.memory.planned.SetLayout(near); err != nil {
			return fmt.Errorf("runner: %s: memory of a step: %w", r.name(), err)
		}
		r.memory.levels.near.layout = near
	}
	r.memory.levels.atMost, r.memory.levels.far.layout = plan.atMost, far
	if far == nil {
		return nil
	}
	if err := r.layFar(far); err != nil {
		return fmt.Errorf("runner: %s: far memory of a step: %w", r.name(), err)
	}
	return nil
}

// layFar reserves the far memory of the step. The first step that offloads creates the far memory.
func (r *worker[T]) layFar(layout *memory.Layout) (err error) {
	if r.memory.far == nil {
		if r.memory.far, err = r.newFar(); err != nil {
			return err
		}
		r.calls.Frames.Far = r.memory.far
	}
	if err := r.memory.far.SetLayout(layout); err != nil {
		return err
	}
	return r.memory.far.Start(len(layout.Allocations))
}

// newFar creates the far memory of the rank.
func (r *worker[T]) newFar() (*offload.Memory[T], error) {
	o := &r.cfg.Memory.Offload
	if err := mayOffload(o, r.calls.Space); err != nil {
		return nil, fmt.Errorf("%w: the plan offloads saved state: %w", ErrPlan, err)
	}
	if device, is := r.calls.Space.(memory.Offloader[T]); is {
		return offload.NewOn(device, o.Budget)
	}
	bytes, err := offload.Heap(), error(nil)
	switch {
	case o.Range != nil:
		bytes, err = o.Range(r.global)
	case o.Folder != "":
		bytes, err = offload.File(o.Folder)
	}
	if err != nil {
		return nil, err
	}
	return offload.New(r.calls.Space.(memory.Movable[T]), bytes, o.Budget)
}

// mayOffload returns an error if a space cannot move saved state to the configured far memory.
func mayOffload[T any](o *Offload, space memory.Space[T]) error {
	switch space.(type) {
	case memory.Offloader[T]:
		if o.Folder != "" || o.Range != nil {
			return fmt.Errorf("%T offloads to its own page-locked memory: leave Memory.Offload.Folder and Range unset", space)
		}
	case memory.Movable[T]:
	default:
		return fmt.Errorf("%T is neither memory.Movable, as kernels.Host is, nor memory.Offloader, as cuda.Device is", space)
	}
	return nil
}

// unlay ends the reservation that lay made. With -tags invariants it returns an error if the step has
// written to memory outside its buffers.
func (r *worker[T]) unlay() (err error) {
	laid := r.memory.levels
	r.memory.levels = levels{}
	if laid.near.layout != nil {
		err = r.memory.planned.SetLayout(nil)
	}
	if r.memory.far != nil && laid.far.layout != nil {
		r.memory.far.Stop()
		err = errors.Join(err, r.memory.far.SetLayout(nil))
	}
	return err
}

// setPosition sets the position in the program to k actions after the base of the levels. The
// position determines the addresses of the next allocations. If the peak of a step without planned memory
// is watched, the position is the number of actions that have run.
func (r *worker[T]) setPosition(k int) {
	l := &r.memory.levels
	if l.far.move(k) {
		r.memory.far.SetPlace(l.far.place)
	}
	if l.near.move(k) {
		l.top = max(l.top, l.near.peak)
		r.memory.planned.SetPlace(l.near.place)
	} else if r.peak.watched {
		r.peak.space.SetPlace(r.running.result.Actions)
	}
}

// setEndPosition sets the position after the last action.
func (r *worker[T]) setEndPosition() {
	for _, l := range []*level{&r.memory.levels.near, &r.memory.levels.far} {
		if l.layout != nil {
			l.base = l.layout.StepEnd()
		}
	}
	r.setPosition(0)
}

// auditPlan compares the live bytes with the memory plan (L6).
func (r *worker[T]) auditPlan() error {
	l := &r.memory.levels
	if l.far.layout != nil {
		if live, planned := r.memory.far.Live(), l.far.live(); live > planned || live < planned && !l.atMost {
			return fmt.Errorf("%w: %d bytes are live in far memory, but the plan has %d: record the stages again", frames.ErrLeak, live, planned)
		}
	}
	if l.near.layout == nil {
		return nil
	}
	if bounded, ok := r.memory.planned.(memory.Bounded); ok {
		return r.calls.Frames.AuditPlan(l.near.live()-bounded.Unrequested(), false)
	}
	return r.calls.Frames.AuditPlan(l.near.live(), l.atMost)
}

// endInterval returns the current level, and the highest level since the last sample. It begins the
// interval up to the next sample.
func (l *level) endInterval() (live, peak int64) {
	live, peak = l.live(), l.peak
	l.peak = live
	return live, peak
}

// explain adds the cause, if it is known, to the error for a refused allocation: the leak that occupies
// the planned address, or the names of the buffers that the plan allocates at this position. It returns
// other errors unchanged.
func (r *worker[T]) explain(err error) error {
	refused, is := errors.AsType[*memory.PlanError](err)
	switch {
	case !is || r.memory.levels.near.layout == nil:
		return err
	case refused.Err == memory.ErrOverlap:
		if lost := r.calls.Frames.KnownLeak(); lost != nil {
			return fmt.Errorf("%w; its place was needed: %w", lost, err)
		}
		return err
	}
	if names := r.running.plan.memory.Names(r.calls.Rank, refused.Place); len(names) > 0 {
		return fmt.Errorf("%w; the plan has here: %s", err, strings.Join(names, ", "))
	}
	return err
}

// fillPlanned is like Fill, but with planned memory: the source may allocate the parts in any order,
// yet each part gets its planned address.
func (r *worker[T]) fillPlanned(ctx context.Context, batchIndex int) error {
	if r.memory.levels.near.layout == nil || r.memory.unordered == nil {
		return r.calls.Fill(ctx, batchIndex)
	}
	r.memory.parts = r.running.plan.memory.AppendParts(r.memory.parts[:0], r.running.plan.MicrobatchAt(batchIndex), r.running.plan.extent.WantedParts(batchIndex))
	if len(r.memory.parts) == 0 {
		return r.calls.Fill(ctx, batchIndex)
	}
	r.memory.unordered.AllowReorder(len(r.memory.parts))
	if err := r.calls.Fill(ctx, batchIndex); err != nil {
		return err
	}
	r.memory.buffers = r.memory.buffers[:0]
	for _, part := range r.memory.parts {
		var h T
		if part >= 0 {
			h, _ = r.calls.Frames.EntryPart(batchIndex, part)
		}
		r.memory.buffers = append(r.memory.buffers, h)
	}
	return r.memory.unordered.ResolveOrder(r.memory.buffers)
}
