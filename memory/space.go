package memory

import "errors"

// Errors of spaces. They are wrapped with the handle and the call.
var (
	// ErrNone is returned for a handle behind which there is no buffer, such as the zero handle.
	ErrNone = errors.New("memory: no buffer behind this handle")
	// ErrStale is returned for a handle whose buffer was released since: its generation has passed.
	ErrStale = errors.New("memory: the buffer behind this handle was released")
	// ErrOtherArena is returned for a handle that another arena made, such as that of another rank.
	ErrOtherArena = errors.New("memory: the handle is of another arena")
	// ErrNotHeld is returned by Yield for a buffer that no holder holds.
	ErrNotHeld = errors.New("memory: the buffer is not held")
	// ErrNoPlain is returned by Release and Hold for a buffer to which only held references are left:
	// the caller has no reference that it could release or hand over.
	ErrNoPlain = errors.New("memory: no plain reference to the buffer is left")
	// ErrOverrun is returned under -tags invariants by Release of a buffer, and by Lay(nil),
	// where bytes that belong to no buffer were written.
	ErrOverrun = errors.New("memory: written beyond a buffer")
	// ErrClosed is returned by Alloc after Close.
	ErrClosed = errors.New("memory: the arena is closed")
	// ErrOutOfMemory is returned when a buffer does not fit.
	ErrOutOfMemory = errors.New("memory: out of memory")
)

// Space counts the references to the buffers behind handles of type T, the
// embedder's own handle: an arena's, a tensor, a bundle of tensors. The zero T
// stands for nothing. One rank has one Space; a Space is not for concurrent use.
type Space[T any] interface {
	// Bytes returns the size of the buffer behind h in bytes, 0 where there is none.
	Bytes(h T) int64
	// Class returns the class that the buffer was allocated with.
	Class(h T) Class
	// Retain adds a plain reference for the caller.
	Retain(h T) error
	// Release releases a plain reference of the caller and returns how many bytes
	// went back to the allocator by it: 0 while somebody else has a reference.
	// It is ErrNoPlain where only held references are left.
	Release(h T) (freed int64, err error)
	// Hold turns one plain reference into a held one and returns the bytes that
	// nobody held before: 0 where the buffer was held already, so that a tensor
	// saved by two stages counts once. It is ErrNoPlain where only held
	// references are left.
	Hold(h T) (held int64, err error)
	// Yield turns one held reference into a plain one, the caller's, and returns
	// the bytes that nobody holds any more: 0 where somebody else still does. It
	// is ErrNotHeld where nobody holds the buffer.
	Yield(h T) (yielded int64, err error)
}

// Fused is an optional ability of a Space: the two things that a step asks for most in one
// call each. A type that embeds such a space, and changes Hold, Yield or Release, changes
// these as well.
type Fused[T any] interface {
	// Enter is Hold. It says the class too, that of h where held is not 0.
	Enter(h T) (held int64, class Class, err error)
	// Leave is Yield, and Release of the reference that it gives. The class is that of h.
	Leave(h T) (yielded, freed int64, class Class, err error)
}

// Receiver is an optional ability of a Space: to copy what another rank of the process has.
// The runner links ranks by it where it is not told how to copy.
type Receiver[T any] interface {
	// Receive returns a copy of h, which is a buffer of another space, in a new one of class
	// Transfer that the caller owns. It runs on the goroutine of this space, while that of the
	// other one may do anything but change or release h.
	Receive(from Space[T], h T) (T, error)
}

// Book is the allocator's book. A Space that has one lets a step audit two
// books, its own and this one (L6). It is fed by allocate and free alone.
type Book interface {
	// Live returns the bytes allocated and not yet freed. It is called after every action.
	Live() int64
	// Stats fills s with the state of the book.
	Stats(s *Stats)
	// ResetPeak makes what is live now the peak.
	ResetPeak()
}

// Reclaimer is an optional ability of a Space: to take back what user code lost
// on its way out of a failed step (L8). Buffers of a Lasting class are never
// taken back, nor is anything that was live at the mark.
type Reclaimer interface {
	// Mark returns a point in the order of allocations.
	Mark() uint64
	// Reclaim frees every buffer allocated since mark that is not Lasting, held
	// or not, and returns the bytes freed. Handles to them become stale.
	Reclaim(mark uint64) int64
}

// Hasher is an optional ability of a Space: to tell whether two buffers hold the same, also
// those of two processes.
type Hasher[T any] interface {
	// Hash returns a hash of the buffer's contents and size. It waits for queued work.
	Hash(h T) (uint64, error)
}

// Stats is the state of an allocator's book, in bytes.
type Stats struct {
	Live     int64   // allocated and not yet freed
	Peak     int64   // highest Live since ResetPeak
	Reserved int64   // held from the system, live or not
	Allocs   int64   // buffers allocated since the start
	Frees    int64   // buffers freed since the start
	Classes  ByClass // Live by class
	// PeakClasses is Peak by class: what was live at that moment, so that the sum is Peak.
	PeakClasses ByClass
}
