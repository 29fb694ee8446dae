package memory

import (
	"math/bits"
	"runtime"
	"weak"
)

// LeakTrackingSpace is a [GCSpace] for pointers that can also report how many tensors outlived a
// step: those that are still reachable after the step has released them. It records the buffers of a
// nonzero size held by steps 0, 1, 2, 4, 8, ... as weak pointers, and discards them at the next of these
// steps, so that a long run pays for only a few steps. In such a step, every held tensor costs a weak pointer
// (some 40 bytes and an allocation); in all others it costs a branch.
type LeakTrackingSpace[E any] struct {
	*GCSpace[*E]
	steps   uint64 // number of steps that have begun
	watched bool   // the current or most recent step is one of those recorded
	seen    []weak.Pointer[E]
}

var (
	_ Space[*int] = (*LeakTrackingSpace[int])(nil)
	_ Reclaimer   = (*LeakTrackingSpace[int])(nil)
)

// NewLeakTrackingSpace returns a space that knows no handles. The functions are the same as for [NewGCSpace].
func NewLeakTrackingSpace[E any](class func(*E) Class, bytes func(*E) int64) *LeakTrackingSpace[E] {
	return &LeakTrackingSpace[E]{GCSpace: NewGCSpace(class, bytes)}
}

// Mark begins a step, and returns the same as [GCSpace.Mark]. A runner calls it once for each step.
func (s *LeakTrackingSpace[E]) Mark() uint64 {
	if s.watched = bits.OnesCount64(s.steps) <= 1; s.watched {
		s.seen = s.seen[:0]
	}
	s.steps++
	return s.GCSpace.Mark()
}

// Hold is like [GCSpace.Hold]. In a recorded step, it records h if h was not held before and its size is not 0.
func (s *LeakTrackingSpace[E]) Hold(h *E) (held int64, err error) {
	held, err = s.GCSpace.Hold(h)
	if err == nil && held > 0 && s.watched {
		s.seen = append(s.seen, weak.Make(h))
	}
	return held, err
}

// StillReachable runs a garbage collection, and returns the number and total bytes of the last recorded step's
// tensors that are still reachable. After a step, this number should not depend on the number of
// microbatches; if it does, a stage or a source is keeping tensors. StillReachable takes as long as a
// collection. Pointer-free values of less than 16 bytes share memory with others, and survive with them.
func (s *LeakTrackingSpace[E]) StillReachable() (handles int, bytes int64) {
	runtime.GC()
	distinct := make(map[weak.Pointer[E]]bool, len(s.seen))
	for _, w := range s.seen {
		if h := w.Value(); h != nil && !distinct[w] {
			distinct[w] = true
			handles, bytes = handles+1, bytes+s.Bytes(h)
		}
	}
	return handles, bytes
}
