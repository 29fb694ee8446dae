package memory

import (
	"cmp"
	"slices"
)

// Info describes a live buffer in messages: in the dump after a failure and in reports of
// leaks. Any package that owns buffers can fill one.
type Info struct {
	Name   string // the owner's name for the buffer; may be ""
	Handle Handle // set if the buffer belongs to an [Arena]
	Class  Class
	Bytes  int64
	Plain  int64  // plain references
	Held   int64  // held references
	Serial uint64 // position in the order of allocations, from 0
	Offset int64  // of the first byte, in an Arena's range
}

// inOrder yields infos by their serial number.
func inOrder(live []Info, yield func(Info) bool) {
	slices.SortFunc(live, func(x, y Info) int { return cmp.Compare(x.Serial, y.Serial) })
	for _, info := range live {
		if !yield(info) {
			return
		}
	}
}
