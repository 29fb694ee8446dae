package memrecords

import (
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/formats/chrometrace"
	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// NewTrace returns a sink that writes counters as Chrome trace events. Each rank is a process
// with counters for its level, peak, reserved memory, plan and excess, and for the level and the
// peak by class. Times are in microseconds since the first record of the log; in a log without
// times, the records of a rank are one millisecond apart. Records that are not of a microbatch, such as
// owners, are omitted. Add returns an error if the log has more than memreport.MaxRanks ranks.
func NewTrace(w io.Writer) Sink {
	return &traceSink{Writer: chrometrace.New(w), ranks: map[int]int64{}}
}

type traceSink struct {
	*chrometrace.Writer
	ranks  map[int]int64 // number of records written, by rank
	origin int64
	began  bool
}

// Add writes the counters for the record of a microbatch, and nothing for other records.
func (t *traceSink) Add(r *memlog.Record) error {
	if !r.Sampled() {
		return nil
	}
	n, known := t.ranks[r.Rank]
	if !known {
		if len(t.ranks) == memreport.MaxRanks {
			return fmt.Errorf("%w: rank %d would exceed the limit of %d", memreport.ErrRanks, r.Rank, memreport.MaxRanks)
		}
		if err := t.Label("process_name", r.Rank, 0, fmt.Sprintf("rank %d", r.Rank)); err != nil {
			return err
		}
	}
	t.ranks[r.Rank] = n + 1
	if !t.began {
		t.began, t.origin = true, r.Time
	}
	at := chrometrace.Time(n * 1000)
	if r.Time != 0 {
		at = chrometrace.Time(r.Time-t.origin) / 1e3
	}
	full := r.Schema > 0
	for _, c := range []struct {
		known bool
		name  string
		bytes int64
	}{
		{true, "live", r.Live}, {true, "peak", r.Peak}, {true, "reserved", r.Reserved},
		{r.Planned, "live, planned", r.LivePlanned}, {r.Planned, "peak, planned", r.PeakPlanned}, {full, "excess", r.Excess},
		{farKnown(r), "far", r.Far}, {farKnown(r), "peak, far", r.FarPeak}, {r.FarPlanned > 0, "peak, far, planned", r.FarPlanned},
	} {
		if c.known {
			t.Count(c.name, r.Rank, at, chrometrace.Counter{Name: "bytes", Value: c.bytes}) // the last call returns the error
		}
	}
	if peakKnown(r) {
		t.Count("peak by class", r.Rank, at, byClass(&r.PeakClasses)...)
	}
	if !full {
		return nil
	}
	return t.Count("by class", r.Rank, at, byClass(&r.Classes)...)
}

// byClass returns a counter with the bytes of every class. Viewers stack the classes.
func byClass(classes *memory.ByClass) (list []chrometrace.Counter) {
	for class, bytes := range classes {
		list = append(list, chrometrace.Counter{Name: memory.Class(class).String(), Value: bytes})
	}
	return list
}
