package memory

// Watched is an optional ability of a [Space]: to report every change of references
// as it happens. A dry run needs it; kernels.Null has it.
type Watched[T any] interface {
	// Watch calls changed for every change from now on, until the next Watch; nil ends
	// that. changed must not call the space.
	Watch(changed func(Change))
	// Serial returns the number of the live buffer behind h, and whether there is one.
	Serial(h T) (uint64, bool)
}

// Change is one reference more or less to a buffer. A buffer begins with the reference
// of its allocation and is released with its last one. Whether a reference is held or plain makes
// no difference here.
type Change struct {
	Op     ChangeOp
	Serial uint64 // of the buffer, in the order of allocation
	Bytes  int64  // as asked for
	Class  Class
}

// ChangeOp is what a change does.
type ChangeOp uint8

// The changes.
const (
	Allocated ChangeOp = iota // the buffer was allocated, with one reference
	Retained                  // one reference more
	Released                  // one reference less
)
