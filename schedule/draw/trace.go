package draw

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Trace writes the step as Chrome trace events in JSON, which Perfetto
// (ui.perfetto.dev) and chrome://tracing open. Each rank is a process. Its first track
// has the computations, and the second the other halves of joined pairs; an arrow
// leads from a computation to the one on another rank that takes its result, and a
// counter shows the bytes that are live, by class. Times are microseconds where the
// unit is one of time (ns, us, ms, s); of another unit, one is a microsecond.
//
// Within a track events come in the order of time.
func (s *Step) Trace(w io.Writer) error {
	if _, err := s.check(); err != nil {
		return err
	}
	t := &tracer{w: bufio.NewWriter(w), step: s, origin: s.clocks().first, scale: microseconds(s.Unit) / float64(max(s.Scale, 1)), flows: map[flow]int{}}
	t.separator = "\n"
	t.w.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	for rank, list := range s.Events {
		t.names(rank)
		for i, e := range list {
			if works(e) {
				t.computation(e, i > 0 && list[i-1].Action.Joined())
			}
		}
		t.counters(rank)
	}
	t.w.WriteString("\n]}\n")
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// microseconds returns how many a unit has.
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

// tracer is a step on its way to a trace.
type tracer struct {
	w         *bufio.Writer
	step      *Step
	origin    int64
	scale     float64 // microseconds of a step of time
	separator string
	flows     map[flow]int
}

// flow is a result that goes to another rank: the output of a stage, or the gradient
// of the input of one.
type flow struct {
	kind              schedule.Kind // F or B
	stage, microbatch int
}

func (t *tracer) event(format string, args ...any) {
	t.w.WriteString(t.separator)
	fmt.Fprintf(t.w, format, args...)
	t.separator = ",\n"
}

// time writes a time in microseconds, to the nanosecond.
func (t *tracer) time(time int64) string { return decimal(float64(time)*t.scale, 3) }

// names names a rank's process and its tracks.
func (t *tracer) names(rank int) {
	t.event(`{"ph":"M","name":"process_name","pid":%d,"tid":0,"args":{"name":"rank %[1]d"}}`, rank)
	t.event(`{"ph":"M","name":"process_sort_index","pid":%d,"tid":0,"args":{"sort_index":%[1]d}}`, rank)
	t.event(`{"ph":"M","name":"thread_name","pid":%d,"tid":0,"args":{"name":"compute"}}`, rank)
	joined := func(e simulate.Event) bool { return e.Action.Joined() }
	if slices.ContainsFunc(t.step.Events[rank], joined) {
		t.event(`{"ph":"M","name":"thread_name","pid":%d,"tid":1,"args":{"name":"compute, joined"}}`, rank)
	}
}

// computation writes a computation, and its end of each arrow.
func (t *tracer) computation(e simulate.Event, second bool) {
	track := 0
	if second {
		track = 1
	}
	a := e.Action
	t.event(`{"ph":"X","name":"%v","cat":"%v","pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"stage":%d,"microbatch":%d,"kind":"%[2]v","position":%[9]d}}`,
		a, a.Kind(), e.Rank, track, t.time(e.Start-t.origin), t.time(e.End-e.Start), a.Stage(), a.Microbatch(), e.Position)
	switch a.Kind() {
	case schedule.F:
		t.takes(e, track, flow{schedule.F, a.Stage() - 1, a.Microbatch()})
		t.gives(e, track, flow{schedule.F, a.Stage(), a.Microbatch()})
	case schedule.B, schedule.I:
		t.takes(e, track, flow{schedule.B, a.Stage() + 1, a.Microbatch()})
		t.gives(e, track, flow{schedule.B, a.Stage(), a.Microbatch()})
	}
}

// gives writes the beginning of an arrow where the result of a computation leaves the
// rank, and takes the end of one.
func (t *tracer) gives(e simulate.Event, track int, f flow) {
	if t.leaves(f) {
		// A viewer ties an arrow to the box that it begins in, so it begins just
		// before the end.
		begin := t.time(e.End - t.origin - (e.End-e.Start+999)/1000)
		t.event(`{"ph":"s","id":%d,"name":"sent","cat":"transfer","pid":%d,"tid":%d,"ts":%s}`, t.flow(f), e.Rank, track, begin)
	}
}

func (t *tracer) takes(e simulate.Event, track int, f flow) {
	if t.leaves(f) {
		t.event(`{"ph":"f","bp":"e","id":%d,"name":"sent","cat":"transfer","pid":%d,"tid":%d,"ts":%s}`, t.flow(f), e.Rank, track, t.time(e.Start-t.origin))
	}
}

// leaves reports whether there is such a result and it goes to another rank.
func (t *tracer) leaves(f flow) bool {
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

// flow returns the number of a result, which both ends of its arrow have.
func (t *tracer) flow(f flow) int {
	n, ok := t.flows[f]
	if !ok {
		n = len(t.flows) + 1
		t.flows[f] = n
	}
	return n
}

// counters writes the bytes that are live on a rank, those classes that it ever has.
func (t *tracer) counters(rank int) {
	var classes []memory.Class
	for class := range memory.Class(memory.NumClasses) {
		has := func(e simulate.Event) bool { return e.Live[class] != 0 }
		if slices.ContainsFunc(t.step.Events[rank], has) {
			classes = append(classes, class)
		}
	}
	var last memory.ByClass
	for i, e := range t.step.Events[rank] {
		if i > 0 && e.Live == last || len(classes) == 0 {
			continue
		}
		last = e.Live
		args := ""
		for _, class := range classes {
			args += fmt.Sprintf(`,"%v":%d`, class, e.Live[class])
		}
		t.event(`{"ph":"C","name":"live bytes","pid":%d,"ts":%s,"args":{%s}}`, rank, t.time(e.End-t.origin), args[1:])
	}
}
