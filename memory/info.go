package memory

import (
	"cmp"
	"slices"
)

// Info describes a live buffer for messages: the dump after a failure, and leak reports. Any package that
// owns buffers can fill one in.
type Info struct {
	Name   string // the owner's name for the buffer; may be ""
	Handle Handle // set if the buffer belongs to an [Arena]
	Class  Class
	Bytes  int64
	Plain  int64  // plain references
	Held   int64  // held references
	Serial uint64 // position in the order of allocations, from 0
	Offset int64  // offset of the first byte in an Arena's range
}

// inOrder sorts live by serial number and yields its elements in that order.
func inOrder(live []Info, yield func(Info) bool) {
	slices.SortFunc(live, func(x, y Info) int { return cmp.Compare(x.Serial, y.Serial) })
	for _, info := range live {
		if !yield(info) {
			return
		}
	}
}
