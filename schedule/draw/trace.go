package draw

import (
	"fmt"
	"io"
	"slices"

	"github.com/weir-ml/weir/internal/formats/chrometrace"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Trace writes the step as Chrome trace events in JSON, for Perfetto (ui.perfetto.dev) and
// chrome://tracing. Each rank is a process. Its first track shows the computations, and the second shows
// the second halves of joined pairs. Four more tracks show the copies to far memory and back, and the
// replicas' reductions and gathers. An arrow leads from a computation to the computation on another rank
// that takes its result, and a counter shows the live bytes by class. Times are in microseconds if the
// step's unit is a unit of time (ns, us, ms, s); otherwise one unit is shown as one microsecond.
//
// The events of a track are in order of time. An error about the step wraps ErrStep or ErrTooLong.
func (s *Step) Trace(w io.Writer) error {
	if _, err := s.check(); err != nil {
		return err
	}
	t := &tracer{
		out: chrometrace.New(w), step: s, origin: s.clocks().first, scale: microseconds(s.Unit) / float64(max(s.Scale, 1)), flows: map[flow]int{},
	}
	for rank := range s.Events {
		t.names(rank)
		for b := range s.boxes(rank) {
			t.computation(b)
		}
		for lane := range lanes {
			copies := s.copies(rank, lane)
			if len(copies) > 0 {
				t.out.Label("thread_name", rank, 2+lane, lanes[lane].trace)
			}
			for _, b := range copies {
				t.box(b.TimedAction, 2+lane)
			}
		}
		t.counters(rank)
	}
	if err := t.out.Close(); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// microseconds returns the number of microseconds in a unit.
func microseconds(unit string) float64 {
	switch unit {
	case "ns":
		return 1e-3
	case "ms":
		return 1e3
	case "s":
		return 1e6
	}
	return 1
}

// tracer writes a trace.
type tracer struct {
	out    *chrometrace.Writer // its errors are returned by Close
	step   *Step
	origin int64
	scale  float64 // microseconds per time unit of the events
	flows  map[flow]int
}

// flow is a result that another rank takes: the output of a stage (F), or the gradient of its input
// (B).
type flow struct {
	kind              schedule.Kind // F or B
	stage, microbatch int
}

// time returns a time in microseconds.
func (t *tracer) time(time int64) chrometrace.Time {
	return chrometrace.Time(float64(time) * t.scale)
}

// names writes the names of a rank's process and tracks.
func (t *tracer) names(rank int) {
	t.out.Label("process_name", rank, 0, fmt.Sprintf("rank %d", rank))
	t.out.Event(chrometrace.Event{Phase: "M", Name: "process_sort_index", Rank: rank, Args: map[string]int{"sort_index": rank}})
	t.out.Label("thread_name", rank, 0, "compute")
	joined := func(e simulate.TimedAction) bool { return e.Action.Joined() }
	if slices.ContainsFunc(t.step.Events[rank], joined) {
		t.out.Label("thread_name", rank, 1, "compute, joined")
	}
}

// computation writes a computation, the end of the arrow to it if it takes a result from another rank,
// and the beginning of an arrow if its result leaves the rank.
func (t *tracer) computation(b box) {
	track := 0
	if b.half == 2 {
		track = 1
	}
	t.box(b.TimedAction, track)
	stage, mb := b.Action.Stage(), b.Action.Microbatch()
	var taken, made flow
	switch b.Action.Kind() {
	case schedule.F:
		taken, made = flow{schedule.F, stage - 1, mb}, flow{schedule.F, stage, mb}
	case schedule.B, schedule.I:
		taken, made = flow{schedule.B, stage + 1, mb}, flow{schedule.B, stage, mb}
	default:
		return
	}
	arrow := chrometrace.Event{Name: "sent", Class: "transfer", Rank: b.Rank, Track: track}
	if t.crosses(taken) {
		arrow.Phase, arrow.Bind, arrow.ID, arrow.Start = "f", "e", t.flow(taken), t.time(b.Start-t.origin)
		t.out.Event(arrow)
	}
	if t.crosses(made) {
		// A viewer attaches an arrow to the box in which it begins, so the arrow begins just before the
		// box ends.
		arrow.Phase, arrow.Bind, arrow.ID, arrow.Start = "s", "", t.flow(made), t.time(b.End-t.origin-(b.End-b.Start+999)/1000)
		t.out.Event(arrow)
	}
}

// box writes an event on a track.
func (t *tracer) box(e simulate.TimedAction, track int) {
	a, length := e.Action, t.time(e.End-e.Start)
	t.out.Event(chrometrace.Event{
		Phase: "X", Name: a.String(), Class: a.Kind().String(), Rank: e.Rank, Track: track, Start: t.time(e.Start - t.origin), Length: &length,
		Args: struct {
			Stage      int    `json:"stage"`
			Microbatch int    `json:"microbatch"`
			Kind       string `json:"kind"`
			Position   int64  `json:"position"`
		}{a.Stage(), a.Microbatch(), a.Kind().String(), e.Position},
	})
}

// crosses reports whether the result exists and another rank takes it.
func (t *tracer) crosses(f flow) bool {
	plan := t.step.Plan
	to := f.stage + 1
	if f.kind == schedule.B {
		to = f.stage - 1
	}
	lower := min(f.stage, to)
	if lower < 0 || max(f.stage, to) >= plan.Placement.Stages() || plan.Placement.Last(lower) {
		return false
	}
	return plan.Placement.Rank[f.stage] != plan.Placement.Rank[to] && (f.kind == schedule.F || plan.HasBackward(lower))
}

// flow returns the number of a result, which both ends of its arrow share.
func (t *tracer) flow(f flow) int {
	n, ok := t.flows[f]
	if !ok {
		n = len(t.flows) + 1
		t.flows[f] = n
	}
	return n
}

// counters writes the live bytes of a rank, for the classes that occur on it.
func (t *tracer) counters(rank int) {
	var classes []memory.Class
	for class := range memory.Class(memory.NumClasses) {
		isLive := func(e simulate.TimedAction) bool { return e.Live[class] != 0 }
		if slices.ContainsFunc(t.step.Events[rank], isLive) {
			classes = append(classes, class)
		}
	}
	var last memory.ByClass
	for i, e := range t.step.Events[rank] {
		if i > 0 && e.Live == last || len(classes) == 0 {
			continue
		}
		last = e.Live
		values := make([]chrometrace.Counter, len(classes))
		for i, class := range classes {
			values[i] = chrometrace.Counter{Name: class.String(), Value: e.Live[class]}
		}
		t.out.Count("live bytes", rank, t.time(e.End-t.origin), values...)
	}
}
