package memory

import (
	"math/bits"
	"runtime"
	"weak"
)

// Surveyed is a [Collected] space for pointers that can also say which tensors outlived a
// step: those that somebody still reaches when the step has let go of them. It remembers by
// weak pointers what the steps 0, 1, 2, 4, 8, ... hold, and forgets it with the next of these,
// so that a run of any length pays for few steps. In such a step every tensor that is handed
// over costs a weak pointer, some 40 bytes and an allocation; in all others it costs a branch.
type Surveyed[E any] struct {
	*Collected[*E]
	steps   uint64 // that have begun
	watched bool   // the step that began last is one of those
	seen    []weak.Pointer[E]
}

var (
	_ Space[*int] = (*Surveyed[int])(nil)
	_ Reclaimer   = (*Surveyed[int])(nil)
)

// NewSurveyed returns a space that knows no handle; the functions are those of [NewCollected].
func NewSurveyed[E any](class func(*E) Class, bytes func(*E) int64) *Surveyed[E] {
	return &Surveyed[E]{Collected: NewCollected(class, bytes)}
}

// Mark is called as a step begins.
func (s *Surveyed[E]) Mark() uint64 {
	if s.watched = bits.OnesCount64(s.steps) <= 1; s.watched {
		s.seen = s.seen[:0]
	}
	s.steps++
	return s.Collected.Mark()
}

// Hold remembers what is handed over for the first time.
func (s *Surveyed[E]) Hold(h *E) (held int64, err error) {
	held, err = s.Collected.Hold(h)
	if err == nil && held > 0 && s.watched {
		s.seen = append(s.seen, weak.Make(h))
	}
	return held, err
}

// Survivors collects garbage, and returns how many of the tensors that the last watched step
// was handed are still reached, and their bytes. Asked after a step it should be the same for
// any number of microbatches: what grows with them is kept by a stage or a source. It takes
// as long as a collection. Values of less than 16 bytes without pointers share their memory
// with others, and survive with them.
func (s *Surveyed[E]) Survivors() (handles int, bytes int64) {
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
