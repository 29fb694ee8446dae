package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/far"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// levels is the position in the memory plan of the running step. The plan gives the number of live
// bytes, the level, at each position.
type levels struct {
	rank     *layout.Rank // nil if the memory of the step is not planned
	atMost   bool         // the plan is an upper bound
	position int
	peak     int64 // the highest level since the last sample
	top      int64 // the highest level of the step

	far                  *layout.Rank // of far memory; nil if the step does not offload
	farBase, farPosition int
	farPeak              int64 // the highest level of far memory since the last sample
}

// base returns the position of the first action in a repeat of a segment.
func (l *levels) base(segment, repeat int) int {
	if l.far != nil {
		l.farBase = l.far.Segments[segment].Base(repeat)
	}
	if l.rank == nil {
		return 0
	}
	return l.rank.Segments[segment].Base(repeat)
}

// plansMemory reports whether the step plans memory of this rank. It plans the far memory if it
// offloads, and the other memory if the space is memory.Planned. An evaluation with Outputs is not
// planned, because the caller owns the outputs indefinitely.
func (r *worker[T]) plansMemory(plan *planned) bool {
	if r.planned == nil {
		return plan.offloads && r.cfg.Memory.Profile != nil && !r.cfg.Memory.TolerateLeaks
	}
	return plan.Mode == schedule.Training || r.cfg.Outputs == nil
}

// shapes returns the shape classes of the microbatches of the rank's plan, or nil if the source is
// not Shaped.
func (r *worker[T]) shapes(plan *schedule.Plan) []int {
	shaped, ok := r.Source.(Shaped)
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
	rank := &plan.memory.Ranks[r.Rank]
	if r.planned != nil {
		if err := r.planned.Lay(rank.Layout); err != nil {
			return fmt.Errorf("runner: %s: memory of a step: %w", r.name(), err)
		}
		r.levels.rank = rank
	}
	r.levels.atMost, r.levels.far = plan.atMost, rank.Far
	if rank.Far == nil {
		return nil
	}
	if err := r.layFar(rank.Far.Layout); err != nil {
		return fmt.Errorf("runner: %s: far memory of a step: %w", r.name(), err)
	}
	return nil
}

// layFar reserves the far memory of the step. The first step that offloads makes it.
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

// newFar returns the far memory of the rank.
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

// unlay ends the reservation of lay. With -tags invariants it returns an error if the step has
// written to memory outside of its buffers.
func (r *worker[T]) unlay() (err error) {
	laid := r.levels
	r.levels = levels{}
	if laid.rank != nil {
		err = r.planned.Lay(nil)
	}
	if r.far != nil && laid.far != nil {
		r.far.Stop()
		err = errors.Join(err, r.far.Lay(nil))
	}
	return err
}

// setPosition sets the position in the program to k actions after a base of levels. The position
// determines the addresses of the next allocations. If memory is not planned, it is the number of
// actions that have run.
func (r *worker[T]) setPosition(base, k int) {
	l := &r.levels
	if l.far != nil {
		l.farPosition = l.farBase + k
		l.farPeak = max(l.farPeak, l.far.Layout.Levels[l.farPosition].Peak)
		r.far.At(l.farPosition)
	}
	if l.rank == nil {
		if r.peak.watched {
			r.peak.space.At(r.result.Actions)
		}
		return
	}
	l.position = base + k
	if level := l.rank.Layout.Levels[l.position].Peak; level > l.peak {
		l.peak, l.top = level, max(l.top, level)
	}
	r.planned.At(l.position)
}

// setEndPosition sets the position after the last action.
func (r *worker[T]) setEndPosition() {
	end := 0
	l := &r.levels
	if l.rank != nil {
		end = l.rank.End
	}
	if l.far != nil {
		l.farBase = l.far.End
	}
	r.setPosition(end, 0)
}

// auditPlan compares the live bytes with the memory plan (L6).
func (r *worker[T]) auditPlan() error {
	l := &r.levels
	if l.far != nil {
		if live, planned := r.far.Live(), l.far.Layout.Levels[l.farPosition].Live; live > planned || live < planned && !l.atMost {
			return fmt.Errorf("%w: %d bytes are live in far memory, but the plan has %d: record the stages again", frames.ErrLeak, live, planned)
		}
	}
	if l.rank == nil {
		return nil
	}
	return r.Frames.AuditPlan(l.rank.Layout.Levels[l.position].Live, l.atMost)
}

// samplePlan fills in the memory plan's numbers of a sample.
func (r *worker[T]) samplePlan(s *memory.Sample) {
	l := &r.levels
	if l.far != nil {
		s.FarPlanned, l.farPeak = l.farPeak, l.far.Layout.Levels[l.farPosition].Live
	}
	s.Planned = l.rank != nil
	if !s.Planned {
		return
	}
	before, live := r.Frames.Baseline(), l.rank.Layout.Levels[l.position].Live
	s.LivePlanned, s.PeakPlanned = before+live, before+l.peak
	l.peak = live
}

// explain adds the cause to the error of a refused allocation: the leak that occupies the planned
// address, or the names of the buffers that the plan has at this position.
func (r *worker[T]) explain(err error) error {
	refused, is := errors.AsType[*memory.PlanError](err)
	switch {
	case !is || r.levels.rank == nil:
		return err
	case refused.Err == memory.ErrOverlap:
		if lost := r.Frames.KnownLeak(); lost != nil {
			return fmt.Errorf("%w; its place was needed: %w", lost, err)
		}
		return err
	}
	if names := r.plannedAt(refused.Place); len(names) > 0 {
		return fmt.Errorf("%w; the plan has here: %s", err, strings.Join(names, ", "))
	}
	return err
}

// plannedAt returns the names of the buffers that the memory plan allocates at a position, in order.
func (r *worker[T]) plannedAt(place int) (names []string) {
	const most = 16
	places := r.levels.rank.Layout.Places
	if place < 0 || place >= len(places)-1 {
		return nil
	}
	count := int(places[place+1] - places[place])
	for c := range r.plan.memory.All(r.Rank) {
		if len(names) == min(count, most) {
			break
		}
		if c.Alloc && c.Place == place {
			names = append(names, fmt.Sprintf("%s (%d bytes)", r.plan.memory.Name(c), c.Bytes))
		}
	}
	if count > most {
		names = append(names, fmt.Sprintf("and %d more", count-most))
	}
	return names
}

// fillPlanned is Fill with planned memory: the source may allocate the parts in any order, and each
// part gets its planned address.
func (r *worker[T]) fillPlanned(ctx context.Context, item int) error {
	if r.levels.rank == nil || r.unordered == nil {
		return r.Fill(ctx, item)
	}
	entry := r.plan.memory.Entry(r.plan.OfItem(item), r.plan.extent.WantedParts(item))
	if entry == nil {
		return r.Fill(ctx, item)
	}
	births := 0
	for _, e := range entry.Events {
		if e.Op == layout.Alloc {
			births++
		}
	}
	r.unordered.AnyOrder(births)
	if err := r.Fill(ctx, item); err != nil {
		return err
	}
	r.entryBuffers = r.entryBuffers[:0]
	for _, e := range entry.Events {
		if e.Op != layout.Alloc {
			continue
		}
		var h T
		if part := slices.Index(entry.Out, e.Ref); part >= 0 {
			h, _ = r.Frames.EntryPart(item, part)
		}
		r.entryBuffers = append(r.entryBuffers, h)
	}
	return r.unordered.Settle(r.entryBuffers)
}
