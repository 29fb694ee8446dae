package memory

import "errors"

// Errors of spaces. They are wrapped with the handle and the call.
var (
	// ErrNone is returned for a handle without a buffer, such as the zero handle.
	ErrNone = errors.New("memory: no buffer behind this handle")
	// ErrStale is returned for a handle whose buffer was released: its generation has passed. Under
	// -tags invariants, it is also returned if memory was written through a view of a released buffer.
	ErrStale = errors.New("memory: the buffer behind this handle was released")
	// ErrOtherArena is returned for a handle of another arena, such as the arena of another rank.
	ErrOtherArena = errors.New("memory: the handle belongs to another arena")
	// ErrNotHeld is returned by Unhold for a buffer without a held reference.
	ErrNotHeld = errors.New("memory: the buffer is not held")
	// ErrNoPlain is returned by Release and Hold for a buffer that has only held references:
	// the caller has no reference to release or to convert.
	ErrNoPlain = errors.New("memory: no plain reference to the buffer is left")
	// ErrOverrun is returned under -tags invariants by Release of a buffer, and by SetLayout(nil), if
	// bytes that belong to no buffer were written.
	ErrOverrun = errors.New("memory: written beyond a buffer")
	// ErrClosed is returned after Close by Alloc, SetLayout, ReleasePages and RestorePages.
	ErrClosed = errors.New("memory: the arena is closed")
	// ErrOutOfMemory is returned if there is no room for a buffer or a step, or if the system supplies no
	// more memory.
	ErrOutOfMemory = errors.New("memory: out of memory")
)

// Space counts the references to the buffers behind handles of type T, the embedder's own handle type: an
// arena's handle, a tensor, a bundle of tensors. The zero T refers to no buffer. Each rank has its own
// Space. A Space is not safe for concurrent use.
type Space[T any] interface {
	// Bytes returns the size of the buffer in bytes, or 0 if there is none.
	Bytes(h T) int64
	// Class returns the class that the buffer was allocated with.
	Class(h T) Class
	// Retain adds a plain reference for the caller.
	Retain(h T) error
	// Release releases a plain reference of the caller and returns the number of bytes that
	// were freed: 0 while other references remain. It returns ErrNoPlain if only held
	// references are left.
	Release(h T) (freed int64, err error)
	// Hold converts one plain reference into a held one. It returns the size of the buffer if
	// it was not held before, and otherwise 0, so that a tensor saved by two stages counts
	// once. It returns ErrNoPlain if only held references are left.
	Hold(h T) (held int64, err error)
	// Unhold converts one held reference into a plain one, owned by the caller. It returns the
	// size of the buffer if it is no longer held, and otherwise 0. It returns ErrNotHeld if the
	// buffer is not held.
	Unhold(h T) (unheld int64, err error)
}

// HoldReleaser is an optional interface of a Space: it combines the most frequent calls of a step. A
// type that embeds such a space, and overrides Hold, Unhold or Release, must override these as
// well.
type HoldReleaser[T any] interface {
	// HoldWithClass is like Hold, but also returns the class of h if held is not 0.
	HoldWithClass(h T) (held int64, class Class, err error)
	// UnholdAndRelease combines Unhold and Release of the resulting reference. It also returns the class of
	// h.
	UnholdAndRelease(h T) (unheld, freed int64, class Class, err error)
}

// Receiver is an optional interface of a Space: it copies buffers of another rank in the same process.
// The runner links ranks with it unless it has another copy function.
type Receiver[T any] interface {
	// Receive returns a copy of h, a buffer of another space, in a new buffer of class
	// Transfer, owned by the caller. It runs on the goroutine of this space, while the
	// goroutine of the other one may do anything except change or release h.
	Receive(from Space[T], h T) (T, error)
}

// Movable is an optional interface of a Space: the contents of its buffers can be moved to far memory and
// brought back into another buffer. The runner needs it to offload saved state.
type Movable[T any] interface {
	// View returns the bytes of a buffer. Until the caller releases the buffer, another goroutine
	// may read or write them.
	View(h T) ([]byte, error)
	// Like returns a new buffer of the given class, owned by the caller, with the type and size of h,
	// even if the buffer of h has been released. Its contents are undefined.
	Like(class Class, h T) (T, error)
}

// Offloader is implemented by a Space instead of Movable if its device itself copies to far memory, on
// its own queues.
type Offloader[T any] interface {
	// Bytes is the method of Space, and Like the method of Movable.
	Bytes(h T) int64
	Like(class Class, h T) (T, error)
	// NewFarMemory returns new far memory, owned by the caller, who must release it.
	NewFarMemory() (FarMemory[T], error)
}

// FarMemory is memory that a device copies buffers to and from. Each direction has its own queue. The space's
// Reclaim waits for queued copies.
type FarMemory[T any] interface {
	Range
	// Begin prepares for a step with at most n copies at a time, which are numbered from 0 to n-1.
	Begin(n int) error
	// Store queues a copy from a buffer to an offset in the far memory, and Load a copy from an offset to
	// a buffer. A copy runs after all work that the device was given before it.
	Store(number int32, h T, offset int64) error
	Load(number int32, h T, offset int64) error
	// Await orders all work that the device is given from now on behind the last Store or Load with this
	// number. The caller does not wait.
	Await(number int32) error
}

// Book is the allocator's book. With a Book, a step audits two books, its own and this one
// (L6). Only allocations and frees update it.
type Book interface {
	// Live returns the bytes allocated and not yet freed. It is called after every action.
	Live() int64
	// Stats fills s with the state of the book.
	Stats(s *Stats)
	// ResetPeak sets the peak to the live bytes.
	ResetPeak()
}

// Reclaimer is an optional interface of a Space: it reclaims buffers that user code did not
// release after a failed step (L8). It never reclaims buffers of a Lasting class, nor buffers
// that were live at the mark.
type Reclaimer interface {
	// Mark returns the current position in allocation order.
	Mark() uint64
	// Reclaim frees every buffer allocated since mark that is not Lasting, held
	// or not, and returns the bytes freed. Handles to them become stale.
	Reclaim(mark uint64) int64
}

// Hasher is an optional interface of a Space: it makes it possible to compare the contents of buffers,
// even between processes.
type Hasher[T any] interface {
	// Hash returns a hash of the buffer's contents and size. It waits for queued work.
	Hash(h T) (uint64, error)
}

// Typed is an optional interface of a Space: it names the element types of buffers, which the uses of a
// tied parameter must share.
type Typed[T any] interface {
	TypeName(h T) string
}

// Stats is the state of an allocator's book, in bytes.
type Stats struct {
	Live     int64   // allocated and not yet freed
	Peak     int64   // highest Live since ResetPeak
	Reserved int64   // held from the system, live or not
	Allocs   int64   // buffers allocated since the start
	Frees    int64   // buffers freed since the start
	Classes  ByClass // Live by class
	// PeakClasses is Peak by class: the live bytes at the moment of the peak. Their sum is
	// Peak.
	PeakClasses ByClass
}
