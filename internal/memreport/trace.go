package memreport

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// NewTrace returns a sink that writes counters as Chrome trace events in JSON, which
// Perfetto (ui.perfetto.dev) and chrome://tracing open. Each rank is a process with
// counters for its level, peak, reserved memory, what is planned, the excess, and the
// bytes of level and peak by class. Times are those of the log in microseconds from its first record;
// without times, a record of a rank is a millisecond. Owners are left out, and ranks
// beyond MostRanks are an error.
func NewTrace(w io.Writer) Sink {
	t := &traceSink{w: bufio.NewWriter(w), ranks: map[int]int64{}, separator: "\n"}
	t.w.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	return t
}

// traceSink writes events. The first error of the writer is kept in it.
type traceSink struct {
	w         *bufio.Writer
	ranks     map[int]int64 // records of each so far
	origin    int64
	began     bool
	separator string
	line      []byte
}

// Add writes the counters of a record.
func (t *traceSink) Add(r *memlog.Record) error {
	if !r.Sampled() {
		return nil
	}
	n, known := t.ranks[r.Rank]
	if !known {
		if len(t.ranks) == MostRanks {
			return fmt.Errorf("%w: rank %d comes after %d others", ErrRanks, r.Rank, MostRanks)
		}
		t.event(fmt.Appendf(t.line[:0], `{"ph":"M","name":"process_name","pid":%d,"args":{"name":"rank %d"}}`, r.Rank, r.Rank))
	}
	t.ranks[r.Rank] = n + 1
	if !t.began {
		t.began, t.origin = true, r.Time
	}
	nanoseconds := n * 1e6
	if r.Time != 0 {
		nanoseconds = r.Time - t.origin
	}
	t.counter(r, nanoseconds, "live", r.Live)
	t.counter(r, nanoseconds, "peak", r.Peak)
	t.counter(r, nanoseconds, "reserved", r.Reserved)
	if r.Planned {
		t.counter(r, nanoseconds, "live, planned", r.LivePlanned)
		t.counter(r, nanoseconds, "peak, planned", r.PeakPlanned)
	}
	if r.Schema > 0 {
		t.counter(r, nanoseconds, "excess", r.Excess)
		t.classes(r, nanoseconds, "by class", &r.Classes)
	}
	if peakKnown(r) {
		t.classes(r, nanoseconds, "peak by class", &r.PeakClasses)
	}
	_, err := t.w.Write(nil)
	return err
}

// begin begins an event of a record.
func (t *traceSink) begin(r *memlog.Record, nanoseconds int64, name string) {
	t.line = append(t.line[:0], `{"ph":"C","name":"`...)
	t.line = append(t.line, name...)
	t.line = append(t.line, `","pid":`...)
	t.line = strconv.AppendInt(t.line, int64(r.Rank), 10)
	t.line = append(t.line, `,"ts":`...)
	t.line = strconv.AppendFloat(t.line, float64(nanoseconds)/1e3, 'f', -1, 64)
	t.line = append(t.line, `,"args":{`...)
}

func (t *traceSink) counter(r *memlog.Record, nanoseconds int64, name string, bytes int64) {
	t.begin(r, nanoseconds, name)
	t.line = append(t.line, `"bytes":`...)
	t.line = strconv.AppendInt(t.line, bytes, 10)
	t.event(append(t.line, "}}"...))
}

// classes writes one counter with the bytes of every class, which viewers stack.
func (t *traceSink) classes(r *memlog.Record, nanoseconds int64, name string, classes *memory.ByClass) {
	t.begin(r, nanoseconds, name)
	for class, bytes := range classes {
		if class > 0 {
			t.line = append(t.line, ',')
		}
		t.line = append(t.line, '"')
		t.line = append(t.line, memory.Class(class).String()...)
		t.line = append(t.line, `":`...)
		t.line = strconv.AppendInt(t.line, bytes, 10)
	}
	t.event(append(t.line, "}}"...))
}

func (t *traceSink) event(line []byte) {
	t.w.WriteString(t.separator)
	t.w.Write(line)
	t.separator, t.line = ",\n", line
}

// Close ends the list of events.
func (t *traceSink) Close() error {
	t.w.WriteString("\n]}\n")
	return t.w.Flush()
}
