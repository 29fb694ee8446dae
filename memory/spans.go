package memory

import "slices"

// span is a range of an arena: offset and size in bytes. Those of a free range are multiples of the arena's
// alignment.
type span struct{ off, size int64 }

// spans lists the free ranges of an arena, in ascending order, with used bytes between any two of them.
// First fit over a sorted slice is faster than a tree here: a step has only tens of gaps, which occupy a
// few cache lines.
type spans []span

// takeLow takes size bytes from the low end of the lowest span that is large enough.
func (s *spans) takeLow(size int64) (off int64, ok bool) {
	for i := range *s {
		if f := &(*s)[i]; f.size >= size {
			off = f.off
			f.off += size
			s.shrink(i, size)
			return off, true
		}
	}
	return 0, false
}

// takeHigh takes size bytes from the high end of the highest span that is large enough.
func (s *spans) takeHigh(size int64) (off int64, ok bool) {
	for i := len(*s) - 1; i >= 0; i-- {
		if f := &(*s)[i]; f.size >= size {
			off = f.off + f.size - size
			s.shrink(i, size)
			return off, true
		}
	}
	return 0, false
}

// takeHighAligned takes size bytes at a multiple of align, a power of two, from the highest
// span in which they fit.
func (s *spans) takeHighAligned(size, align int64) (off int64, ok bool) {
	for i := len(*s) - 1; i >= 0; i-- {
		f := (*s)[i]
		if off := (f.off + f.size - size) &^ (align - 1); off >= f.off {
			return off, s.takeAt(off, size)
		}
	}
	return 0, false
}

// takeAt takes the range of size bytes at off, if it is free.
func (s *spans) takeAt(off, size int64) bool {
	for i, f := range *s {
		if f.off <= off && off+size <= f.off+f.size {
			*s = slices.Delete(*s, i, i+1)
			if rest := f.off + f.size - off - size; rest > 0 {
				*s = slices.Insert(*s, i, span{off + size, rest})
			}
			if off > f.off {
				*s = slices.Insert(*s, i, span{f.off, off - f.off})
			}
			return true
		}
	}
	return false
}

// shrink removes size bytes from span i, and the span itself if it becomes empty.
func (s *spans) shrink(i int, size int64) {
	(*s)[i].size -= size
	if (*s)[i].size == 0 {
		*s = slices.Delete(*s, i, i+1)
	}
}

// give frees a range, and merges it with adjacent spans.
func (s *spans) give(off, size int64) {
	free := *s
	// low becomes the index of the first span above the range, or len(free).
	low, high := 0, len(free)
	for low < high {
		if mid := int(uint(low+high) >> 1); free[mid].off < off {
			low = mid + 1
		} else {
			high = mid
		}
	}
	i := low
	below := i > 0 && free[i-1].off+free[i-1].size == off
	above := i < len(free) && off+size == free[i].off
	switch {
	case below && above:
		free[i-1].size += size + free[i].size
		*s = slices.Delete(free, i, i+1)
	case below:
		free[i-1].size += size
	case above:
		free[i].off = off
		free[i].size += size
	default:
		*s = slices.Insert(free, i, span{off, size})
	}
}

// largest returns the size of the largest span.
func (s spans) largest() int64 {
	var most int64
	for _, f := range s {
		most = max(most, f.size)
	}
	return most
}
