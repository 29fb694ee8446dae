package memlog

import (
	"io"
	"iter"

	"github.com/weir-ml/weir/memory"
)

// Dump writes the state after a failure: the samples of the ring, the oldest first, then one
// line for each owner of live memory, an object with schema and owner. Both ring and owners may be nil.
// Dump returns the writer's first error.
func Dump(w io.Writer, ring *memory.Ring, owners iter.Seq[memory.Info]) error {
	l := New(w)
	if ring != nil {
		for i := range ring.Len() {
			l.Sample(ring.At(i))
		}
	}
	if owners != nil {
		for info := range owners {
			l.object("owner", ownerFields(&info))
		}
	}
	return l.Err()
}

// ownerFields returns the fields of a live buffer.
func ownerFields(o *memory.Info) object {
	return object{
		{key: "name", to: &o.Name, optional: true},
		{key: "class", to: &o.Class},
		{key: "bytes", to: &o.Bytes},
		{key: "plain", to: &o.Plain},
		{key: "held", to: &o.Held},
		{key: "serial", to: &o.Serial},
	}
}
