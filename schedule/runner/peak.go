package runner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// peak is the state of Hooks.Peak on a rank.
type peak struct {
	space   memory.PeakWatched // nil if the hook is not set or the space does not support it
	watched bool               // the space is watching the running step
	highest int64              // the highest reported peak, in bytes
}

// reportPeak calls the hook with the owners at the peak of the step, if the peak was higher than all earlier ones.
func (r *worker[T]) reportPeak() {
	p := &r.peak
	if bytes := r.running.result.Ranks[r.global].Peak; p.watched && bytes > p.highest {
		p.highest = bytes
		r.cfg.Hooks.Peak(r.global, slices.Values(r.peakOwners()))
	}
}

// peakOwners returns the bytes that were live at the peak, grouped by class and by the kind and stage
// of the action that allocated them, largest first. It leaves out classes that outlive a step.
func (r *worker[T]) peakOwners() []memory.PeakOwner {
	type birth struct {
		kind  schedule.Kind
		stage int
		class memory.Class
	}
	owners := map[birth]*memory.PeakOwner{}
	for buffer := range r.peak.space.AtPeak() {
		if buffer.Class.Lasting() {
			continue
		}
		action := r.actionAt(buffer.Place)
		b, m := birth{action.Kind(), action.Stage(), buffer.Class}, action.Microbatch()
		if b.class == memory.Entry { // the first action that needs an entry pulls it
			b, m = birth{class: memory.Entry}, -1
		} else if b.kind == schedule.None || b.kind.OfStage() {
			m = -1
		}
		o := owners[b]
		if o == nil {
			o = &memory.PeakOwner{Step: r.running.result.Step, Rank: r.global, Name: r.birthName(b.kind, b.stage, b.class), Class: b.class, First: m, Last: m}
			owners[b] = o
		}
		o.Bytes += buffer.Bytes
		o.Buffers++
		o.First, o.Last = min(o.First, m), max(o.Last, m)
	}
	list := make([]memory.PeakOwner, 0, len(owners))
	for _, o := range owners {
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b memory.PeakOwner) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// actionAt returns the action at a position in the rank's program, or 0 past the end.
func (r *worker[T]) actionAt(position int) schedule.Action {
	for _, segment := range r.running.plan.Programs[r.calls.Rank] {
		n := len(segment.Body)
		if position < n*segment.Repeat {
			return segment.Body[position%n].Shift(position / n * segment.Stride)
		}
		position -= n * segment.Repeat
	}
	return 0
}

// birthName returns the memory plan's name for buffers of a given class allocated by a given kind of
// action.
func (r *worker[T]) birthName(kind schedule.Kind, stage int, class memory.Class) string {
	switch {
	case class == memory.Entry:
		return "entry parts"
	case kind == schedule.None:
		return fmt.Sprintf("step end: %s", class)
	}
	return fmt.Sprintf("stage %d (%s): %s of %s", stage, r.calls.Stages[stage].Spec.Name, class, kind)
}
