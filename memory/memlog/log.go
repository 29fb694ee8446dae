package memlog

import (
	"io"

	"github.com/rs/zerolog"

	"github.com/weir-ml/weir/memory"
)

// schema is the number of the form written here.
const schema = 1

// Log writes samples to a writer, one call of Write for each line. It buffers
// and flushes nothing, has no level, adds no field, and allocates nothing for a
// record. A Log is not for concurrent use; several may share a writer whose
// Write is safe for that. A program that sets zerolog's global level to Disabled
// silences this log too.
type Log struct {
	sink sink
	json zerolog.Logger
}

// New returns a log that writes to w; with a nil w it writes nothing. The caller
// owns w, and buffers, flushes and closes it.
func New(w io.Writer) *Log {
	if w == nil {
		w = io.Discard
	}
	l := &Log{sink: sink{w: w}}
	l.json = zerolog.New(&l.sink)
	return l
}

// Sample writes one line. It does not keep s. What goes wrong is in Err.
func (l *Log) Sample(s *memory.Sample) {
	line := l.json.Log().
		Int("schema", schema).
		Int64("time", s.Time).
		Int64("step", s.Step).
		Int("rank", s.Rank).
		Int("microbatch", s.Microbatch).
		Int("stage", s.Stage).
		Str("action", s.Kind).
		Int64("live", s.Live)
	if s.Planned {
		line.Int64("live_planned", s.LivePlanned)
	}
	line.Int64("peak", s.Peak)
	if s.Planned {
		line.Int64("peak_planned", s.PeakPlanned)
	}
	line.Int64("reserved", s.Reserved).
		Int64("excess", s.Excess).
		Int64("growth", s.Growth).
		Float64("weight", s.Weight).
		Int64("wait_data", s.WaitData).
		Object("classes", (*classes)(&s.Classes))
	if s.PeakClasses != (memory.ByClass{}) {
		line.Object("peak_classes", (*classes)(&s.PeakClasses))
	}
	line.Send()
}

// PeakOwner writes one line. Whoever has planned the memory of steps writes one for each
// owner at the peak, before the first of them: a run that keeps to its plan has the same
// owners then, in every step. Where memory is not planned they are written behind the
// step: runner.Hooks.Peak tells them.
func (l *Log) PeakOwner(o *memory.PeakOwner) {
	l.json.Log().Int("schema", schema).Object("peak_owner", (*peakOwner)(o)).Send()
}

// peakOwner writes an owner at the peak.
type peakOwner memory.PeakOwner

// MarshalZerologObject implements zerolog.LogObjectMarshaler.
func (o *peakOwner) MarshalZerologObject(e *zerolog.Event) {
	e.Int64("step", o.Step).
		Int("rank", o.Rank).
		Str("name", o.Name).
		Str("class", o.Class.String()).
		Int64("bytes", o.Bytes).
		Int("buffers", o.Buffers)
	if o.First >= 0 {
		e.Int("first", o.First).Int("last", o.Last)
	}
}

// Err returns the first error of the writer. After it nothing more is written,
// so that the log ends with at most one broken line.
func (l *Log) Err() error { return l.sink.err }

// classes writes the bytes of every class, in the order of the enum.
type classes memory.ByClass

// MarshalZerologObject implements zerolog.LogObjectMarshaler.
func (c *classes) MarshalZerologObject(e *zerolog.Event) {
	for i, n := range c {
		e.Int64(memory.Class(i).String(), n)
	}
}

// sink keeps the first error of a writer. zerolog must not see one: it would
// print it to the process's standard error.
type sink struct {
	w   io.Writer
	err error
}

// Write implements io.Writer and always succeeds.
func (s *sink) Write(line []byte) (int, error) {
	if s.err == nil {
		if n, err := s.w.Write(line); err != nil {
			s.err = err
		} else if n < len(line) {
			s.err = io.ErrShortWrite
		}
	}
	return len(line), nil
}
