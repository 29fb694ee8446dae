package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// levels is how much the plan of memory has live, where the program is.
type levels struct {
	rank  *layout.Rank // of the running step, nil where its memory is not planned
	most  bool         // the plan is for several shapes: no more than it has is live
	place int
	peak  int64 // the highest level since the last record
	top   int64 // the highest level of the step
}

// base returns the place of the first action of a repeat of a segment.
func (l *levels) base(segment, repeat int) int {
	if l.rank == nil {
		return 0
	}
	return l.rank.Segments[segment].Base(repeat)
}

// plansMemory reports whether the memory of a step is planned on this rank. The outputs
// of an evaluation are somebody else's as long as he likes.
func (r *worker[T]) plansMemory(mode schedule.Mode) bool {
	return r.planned != nil && (mode == schedule.Training || r.cfg.Outputs == nil)
}

// shapesOf returns the shape classes of a plan's microbatches, nil where the source does
// not tell them.
func shapesOf[T any](source Source[T], plan *schedule.Plan) []int {
	shaped, ok := source.(Shaped)
	if !ok {
		return nil
	}
	shapes := make([]int, plan.Microbatches)
	for m := range shapes {
		shapes[m] = shaped.Shape(plan.Item(m))
	}
	return shapes
}

// lay reserves what the step needs on this rank.
func (r *worker[T]) lay(plan *program) error {
	r.levels = levels{}
	if plan.memory == nil || !r.plansMemory(plan.Mode) {
		return nil
	}
	rank := &plan.memory.Ranks[r.Rank]
	if err := r.planned.Lay(rank.Layout); err != nil {
		return fmt.Errorf("runner: rank %d: memory of a step: %w", r.Rank, err)
	}
	r.levels = levels{rank: rank, most: plan.most}
	return nil
}

// unlay ends what lay began. The error is of a build with -tags invariants: somebody has
// written where no buffer was.
func (r *worker[T]) unlay() error {
	if r.levels.rank == nil {
		return nil
	}
	r.levels = levels{}
	return r.planned.Lay(nil)
}

// at says where the program is: what is allocated next is what the plan has there. Where
// memory is not planned, the place is the number of the action.
func (r *worker[T]) at(place int) {
	l := &r.levels
	if l.rank == nil {
		if r.peak.watched {
			r.peak.space.At(r.result.Actions)
		}
		return
	}
	l.place = place
	if level := l.rank.Layout.Levels[place].Peak; level > l.peak {
		l.peak, l.top = level, max(l.top, level)
	}
	r.planned.At(place)
}

// atEnd says that the program is over.
func (r *worker[T]) atEnd() {
	end := 0
	if r.levels.rank != nil {
		end = r.levels.rank.End
	}
	r.at(end)
}

// auditPlan compares what is live with the plan of memory (L6).
func (r *worker[T]) auditPlan() error {
	l := &r.levels
	if l.rank == nil {
		return nil
	}
	return r.Frames.AuditPlan(l.rank.Layout.Levels[l.place].Live, l.most)
}

// samplePlan writes down what the plan of memory has.
func (r *worker[T]) samplePlan(s *memory.Sample) {
	l := &r.levels
	s.Planned = l.rank != nil
	if !s.Planned {
		return
	}
	before, live := r.Frames.Baseline(), l.rank.Layout.Levels[l.place].Live
	s.LivePlanned, s.PeakPlanned = before+live, before+l.peak
	l.peak = live
}

// explain says who lost the buffer that stands where the plan has another one, and for a buffer
// that the plan does not have, which ones it has there.
func (r *worker[T]) explain(err error) error {
	refused, is := errors.AsType[*memory.PlanError](err)
	switch {
	case !is || r.levels.rank == nil:
		return err
	case refused.Err == memory.ErrOverlap:
		if lost := r.Frames.Lost(); lost != nil {
			return fmt.Errorf("%w; its place was needed: %w", lost, err)
		}
		return err
	}
	if names := r.plannedAt(refused.Place); len(names) > 0 {
		return fmt.Errorf("%w; the plan has here: %s", err, strings.Join(names, ", "))
	}
	return err
}

// plannedAt names the buffers that the plan of memory has at a place, in their order.
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

// fillPlanned is fill under a plan of memory: the source may allocate the parts in any order,
// and each comes to lie where the plan has it.
func (r *worker[T]) fillPlanned(ctx context.Context, item int) error {
	if r.levels.rank == nil || r.unordered == nil {
		return r.Fill(ctx, item)
	}
	entry := r.plan.memory.Entry(r.plan.OfItem(item), r.plan.extent.Of(item))
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
	r.entered = r.entered[:0]
	for _, e := range entry.Events {
		if e.Op != layout.Alloc {
			continue
		}
		var h T
		if part := slices.Index(entry.Out, e.Ref); part >= 0 {
			h, _ = r.Frames.Entered(item, part)
		}
		r.entered = append(r.entered, h)
	}
	return r.unordered.Settle(r.entered)
}
