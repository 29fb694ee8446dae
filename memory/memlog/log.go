package memlog

import (
	"io"
	"sync"

	"github.com/rs/zerolog"

	"github.com/weir-ml/weir/memory"
)

// schema is the number of the schema that this package writes.
const schema = 1

// Log writes samples to a writer, with one call of Write for each line. It buffers and flushes nothing,
// has no level, adds no fields, and allocates nothing per record. A Log is safe for concurrent use: the
// ranks of a process share one. A program that sets zerolog's global level to Disabled silences this log
// too.
type Log struct {
	sink  sink
	json  zerolog.Logger
	every int // 0 if every record is written
	mu    sync.Mutex
	since map[int]*skipped // by rank
}

// skipped summarizes the records of a rank since its last line.
type skipped struct {
	step    int64
	records int
	highest memory.Sample // the record with the highest peak
	written memory.Sample // the result of the last call to thinned that was not nil
}

// New returns a log that writes to w; if w is nil it writes nothing. The caller owns w, and
// buffers, flushes and closes it.
func New(w io.Writer) *Log {
	if w == nil {
		w = io.Discard
	}
	l := &Log{sink: sink{w: w}}
	l.json = zerolog.New(&l.sink)
	return l
}

// Every makes the log write one of n records of each rank, including the first of every step,
// and all whose Excess or Growth is not 0. Its lines contain n in the field every, and their peak covers
// the omitted records. With n of 1 or less, it does nothing. Every must be called before the first record.
func (l *Log) Every(n int) {
	if n > 1 {
		l.every, l.since = n, map[int]*skipped{}
	}
}

// thinned returns the record to write, or nil if s is omitted. The record's peak is the highest since the
// rank's previous line. The record is valid until the rank's next one.
func (l *Log) thinned(s *memory.Sample) *memory.Sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.since[s.Rank]
	if r == nil {
		r = &skipped{step: s.Step - 1}
		l.since[s.Rank] = r
	}
	farPeak, farPlanned := max(s.FarPeak, r.highest.FarPeak), max(s.FarPlanned, r.highest.FarPlanned)
	if s.Peak >= r.highest.Peak {
		r.highest = *s
	}
	r.highest.FarPeak, r.highest.FarPlanned = farPeak, farPlanned
	if r.step != s.Step {
		r.step, r.records = s.Step, 0
	}
	r.records++
	if (r.records-1)%l.every != 0 && s.Excess == 0 && s.Growth == 0 {
		return nil
	}
	r.written = *s
	r.written.Peak, r.written.PeakPlanned, r.written.PeakClasses = r.highest.Peak, r.highest.PeakPlanned, r.highest.PeakClasses
	r.written.FarPeak, r.written.FarPlanned = farPeak, farPlanned
	r.highest = memory.Sample{}
	return &r.written
}

// Sample writes s as one line, unless it is one that [Log.Every] omits. It does not keep s. Err returns the
// first error.
func (l *Log) Sample(s *memory.Sample) {
	if l.every > 0 {
		if s = l.thinned(s); s == nil {
			return
		}
	}
	line := l.json.Log().Int("schema", schema)
	for _, f := range sampleFields(s, &l.every) {
		if !f.optional {
			f.write(line)
		}
	}
	line.Send()
}

// sampleFields returns the fields of a sample after the schema, in the order of a line.
func sampleFields(s *memory.Sample, every *int) [26]field {
	unknown := s.Leak.Call == ""
	far := s.FarPeak > 0 || s.FarPlanned > 0
	return [...]field{
		{key: "time", to: (*signed)(&s.Time)},
		{key: "step", to: &s.Step},
		{key: "rank", to: &s.Rank},
		{key: "replica", to: &s.Replica, optional: !s.Replicated},
		{key: "microbatch", to: &s.Microbatch},
		{key: "stage", to: &s.Stage},
		{key: "action", to: &s.Kind},
		{key: "live", to: &s.Live},
		{key: "live_planned", to: &s.LivePlanned, optional: !s.Planned},
		{key: "peak", to: &s.Peak},
		{key: "peak_planned", to: &s.PeakPlanned, optional: !s.Planned},
		{key: "far", to: &s.Far, optional: !far},
		{key: "far_peak", to: &s.FarPeak, optional: !far},
		{key: "far_planned", to: &s.FarPlanned, optional: s.FarPlanned == 0},
		{key: "reserved", to: &s.Reserved},
		{key: "excess", to: (*signed)(&s.Excess)},
		{key: "growth", to: (*signed)(&s.Growth)},
		{key: "leak_stage", to: &s.Leak.Stage, optional: unknown},
		{key: "leak_name", to: &s.Leak.Name, optional: unknown},
		{key: "leak_call", to: &s.Leak.Call, optional: unknown},
		{key: "leak_class", to: &s.Leak.Class, optional: unknown},
		{key: "weight", to: &s.Weight},
		{key: "wait_data", to: &s.WaitData},
		{key: "every", to: every, optional: *every == 0},
		{key: "classes", to: &s.Classes},
		{key: "peak_classes", to: &s.PeakClasses, optional: s.PeakClasses == memory.ByClass{}},
	}
}

// PeakOwner writes o as one line. A trainer that has planned the memory of steps writes a line for each
// owner at the peak, before the first step: a run that follows its plan has the same owners in every
// step. If memory is not planned, it writes them after the step, from runner.Hooks.Peak.
func (l *Log) PeakOwner(o *memory.PeakOwner) {
	fields := peakOwnerFields(o)
	if o.First < 0 {
		fields = fields[:len(fields)-2]
	}
	l.object("peak_owner", fields)
}

// peakOwnerFields returns the fields of an owner at the peak; the last two are numbers of microbatches.
func peakOwnerFields(o *memory.PeakOwner) object {
	return object{
		{key: "step", to: &o.Step},
		{key: "rank", to: &o.Rank},
		{key: "name", to: &o.Name},
		{key: "class", to: &o.Class},
		{key: "bytes", to: &o.Bytes},
		{key: "buffers", to: &o.Buffers},
		{key: "first", to: &o.First},
		{key: "last", to: &o.Last},
	}
}

// object writes a line that contains an object under a key.
func (l *Log) object(key string, o object) { l.json.Log().Int("schema", schema).Object(key, o).Send() }

// Err returns the writer's first error. Nothing is written after an error, so the log ends with at most
// one broken line.
func (l *Log) Err() error {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	return l.sink.err
}

// classes writes the nonzero bytes by class, in the order of the constants.
type classes memory.ByClass

// MarshalZerologObject implements zerolog.LogObjectMarshaler.
func (c *classes) MarshalZerologObject(e *zerolog.Event) {
	for i, n := range c {
		if n != 0 {
			e.Int64(memory.Class(i).String(), n)
		}
	}
}

// sink keeps a writer's first error. It hides errors from zerolog, which would print them to standard
// error.
type sink struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

// Write implements io.Writer and always succeeds.
func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		if n, err := s.w.Write(line); err != nil {
			s.err = err
		} else if n < len(line) {
			s.err = io.ErrShortWrite
		}
	}
	return len(line), nil
}
