package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/internal/engine/far"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// levels is the place of the running step in the layouts of its rank.
type levels struct {
	near, far level // the levels of the rank's space and of its far memory
	atMost    bool  // the layouts are upper bounds
	top       int64 // the highest level of near in the step
}

// level is the place in a layout. The level of a place is the number of bytes that are live there.
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

// move sets the place to k actions after the base. It reports whether the memory is planned.
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
	if r.planned == nil {
		return plan.offloads && r.cfg.Memory.Profile != nil && !r.cfg.Memory.TolerateLeaks
	}
	return plan.Mode == schedule.Training || r.cfg.Outputs == nil
}

// shapes returns the shape classes of the microbatches of the rank's plan, or nil if the source does
// not implement Shaped.
func (r *worker[T]) shapes(plan *schedule.Plan) []int {
	shaped, ok := ofRank(r.Source, r.global).(Shaped)
	if !ok {
		return nil
	}
	shapes := make([]int, plan.Microbatches)
	for m := range shapes {
		shapes[m] = shaped.Shape(r.Frames.Index(plan.Item(m)))
	}
	return shapes
}

// lay reserves the memory of the step on this rank.
func (r *worker[T]) lay(plan *program) error {
	r.levels = levels{}
	if plan.memory == nil || !r.plansMemory(plan.planned) {
		if plan.offloads {
			return fmt.Errorf("%w: the plan offloads saved state: set Memory.Profile, and not TolerateLeaks", ErrPlan)
		}
		return nil
	}
	near, far := plan.memory.Layouts(r.Rank)
	if r.planned != nil {
		if err := r.planned.Lay(near); err != nil {
			return fmt.Errorf("runner: %s: memory of a step: %w", r.name(), err)
		}
		r.levels.near.layout = near
	}
	r.levels.atMost, r.levels.far.layout = plan.atMost, far
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
	if r.far == nil {
		if r.far, err = r.newFar(); err != nil {
			return err
		}
		r.Frames.Far = r.far
	}
	if err := r.far.Lay(layout); err != nil {
		return err
	}
	return r.far.Start(len(layout.Allocations))
}

// newFar creates the far memory of the rank.
func (r *worker[T]) newFar() (*far.Memory[T], error) {
	o := &r.cfg.Memory.Offload
	if err := mayOffload(o, r.Space); err != nil {
		return nil, fmt.Errorf("%w: the plan offloads saved state: %w", ErrPlan, err)
	}
	if device, is := r.Space.(memory.Offloader[T]); is {
		return far.NewOn(device, o.Budget)
	}
	bytes, err := far.Heap(), error(nil)
	switch {
	case o.Range != nil:
		bytes, err = o.Range(r.global)
	case o.Folder != "":
		bytes, err = far.File(o.Folder)
	}
	if err != nil {
		return nil, err
	}
	return far.New(r.Space.(memory.Movable[T]), bytes, o.Budget)
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
	laid := r.levels
	r.levels = levels{}
	if laid.near.layout != nil {
		err = r.planned.Lay(nil)
	}
	if r.far != nil && laid.far.layout != nil {
		r.far.Stop()
		err = errors.Join(err, r.far.Lay(nil))
	}
	return err
}

// setPosition sets the position in the program to k actions after the base of the levels. The
// position determines the addresses of the next allocations. If memory is not planned, the position
// is the number of actions that have run.
func (r *worker[T]) setPosition(k int) {
	l := &r.levels
	if l.far.move(k) {
		r.far.At(l.far.place)
	}
	if l.near.move(k) {
		l.top = max(l.top, l.near.peak)
		r.planned.At(l.near.place)
	} else if r.peak.watched {
		r.peak.space.At(r.result.Actions)
	}
}

// setEndPosition sets the position after the last action.
func (r *worker[T]) setEndPosition() {
	for _, l := range []*level{&r.levels.near, &r.levels.far} {
		if l.layout != nil {
			l.base = l.layout.End()
		}
	}
	r.setPosition(0)
}

// auditPlan compares the live bytes with the memory plan (L6).
func (r *worker[T]) auditPlan() error {
	l := &r.levels
	if l.far.layout != nil {
		if live, planned := r.far.Live(), l.far.live(); live > planned || live < planned && !l.atMost {
			return fmt.Errorf("%w: %d bytes are live in far memory, but the plan has %d: record the stages again", frames.ErrLeak, live, planned)
		}
	}
	if l.near.layout == nil {
		return nil
	}
	if bounded, ok := r.planned.(memory.Bounded); ok {
		return r.Frames.AuditPlan(l.near.live()-bounded.Unrequested(), false)
	}
	return r.Frames.AuditPlan(l.near.live(), l.atMost)
}

// samplePlan fills in a sample's numbers from the memory plan.
func (r *worker[T]) samplePlan(s *memory.Sample) {
	near, far := &r.levels.near, &r.levels.far
	if far.layout != nil {
		s.FarPlanned, far.peak = far.peak, far.live()
	}
	if s.Planned = near.layout != nil; s.Planned {
		before, live := r.Frames.Baseline(), near.live()
		s.LivePlanned, s.PeakPlanned = before+live, before+near.peak
		near.peak = live
	}
}

// explain adds the cause to the error for a refused allocation: the leak that occupies the planned
// address, or the names of the buffers that the plan allocates at this position.
func (r *worker[T]) explain(err error) error {
	refused, is := errors.AsType[*memory.PlanError](err)
	switch {
	case !is || r.levels.near.layout == nil:
		return err
	case refused.Err == memory.ErrOverlap:
		if lost := r.Frames.KnownLeak(); lost != nil {
			return fmt.Errorf("%w; its place was needed: %w", lost, err)
		}
		return err
	}
	if names := r.plan.memory.Names(r.Rank, refused.Place); len(names) > 0 {
		return fmt.Errorf("%w; the plan has here: %s", err, strings.Join(names, ", "))
	}
	return err
}

// fillPlanned is like Fill, but with planned memory: the source may allocate the parts in any order,
// yet each part gets its planned address.
func (r *worker[T]) fillPlanned(ctx context.Context, item int) error {
	if r.levels.near.layout == nil || r.unordered == nil {
		return r.Fill(ctx, item)
	}
	r.entryParts = r.plan.memory.AppendParts(r.entryParts[:0], r.plan.OfItem(item), r.plan.extent.WantedParts(item))
	if len(r.entryParts) == 0 {
		return r.Fill(ctx, item)
	}
	r.unordered.AnyOrder(len(r.entryParts))
	if err := r.Fill(ctx, item); err != nil {
		return err
	}
	r.entryBuffers = r.entryBuffers[:0]
	for _, part := range r.entryParts {
		var h T
		if part >= 0 {
			h, _ = r.Frames.EntryPart(item, part)
		}
		r.entryBuffers = append(r.entryBuffers, h)
	}
	return r.unordered.Settle(r.entryBuffers)
}
