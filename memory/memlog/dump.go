package memlog

import (
	"io"
	"iter"

	"github.com/rs/zerolog"

	"github.com/weir-ml/weir/memory"
)

// Dump writes what is known after a failure: the samples of the ring, the oldest
// first, then one line for each owner of live memory, an object with schema and
// owner. Either may be nil. It returns the first error of the writer.
func Dump(w io.Writer, ring *memory.Ring, owners iter.Seq[memory.Info]) error {
	l := New(w)
	if ring != nil {
		for i := range ring.Len() {
			l.Sample(ring.At(i))
		}
	}
	if owners != nil {
		for info := range owners {
			l.json.Log().Int("schema", schema).Object("owner", (*owner)(&info)).Send()
		}
	}
	return l.Err()
}

// owner writes a live buffer.
type owner memory.Info

// MarshalZerologObject implements zerolog.LogObjectMarshaler.
func (o *owner) MarshalZerologObject(e *zerolog.Event) {
	e.Str("name", o.Name).
		Str("class", o.Class.String()).
		Int64("bytes", o.Bytes).
		Int64("plain", o.Plain).
		Int64("held", o.Held).
		Uint64("serial", o.Serial)
}
