package memory

// Watched is an optional interface of a [Space]: it reports every change to references as it happens. A
// dry run needs it; kernels.Null implements it.
type Watched[T any] interface {
	// Watch arranges for changed to be called on every subsequent change, until the next Watch; nil stops
	// the calls. changed must not call the space.
	Watch(changed func(Change))
	// Serial returns the number of the live buffer of h, and whether there is one.
	Serial(h T) (uint64, bool)
}

// Change is the addition or removal of one reference to a buffer. A buffer starts with the
// reference of its allocation and is freed with its last one. Held and plain references are not
// distinguished.
type Change struct {
	Op     ChangeOp
	Serial uint64 // number of the buffer, in allocation order
	Bytes  int64  // requested size
	Class  Class
}

// ChangeOp is the kind of a change.
type ChangeOp uint8

// The changes.
const (
	Allocated ChangeOp = iota // the buffer was allocated, with one reference
	Retained                  // one reference was added
	Released                  // one reference was removed
)
