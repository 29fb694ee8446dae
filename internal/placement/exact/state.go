package exact

import "math"

// searcher is the state of a run: the placed buffers, and bounds for the others. An unplaced
// buffer will be placed above all placed buffers that share a column with it, so that columns
// fill from below.
type searcher struct {
	*field
	capacity   int64
	preference preference
	worth      []float64 // of buffers, according to the preference
	cells      int64     // number visited so far
	limit      int64     // of cells
	turns      int       // remaining number of placements
	idle       func() bool

	low     []int64   // by buffer, the end of the placed buffers below it; for a placed one, its offset
	least   []int64   // by buffer, a lower bound on its offset; for a placed one, the constant placed
	carrier []int32   // by buffer, another one on which it may rest, or itself
	tops    []int64   // by column, the end of the placed buffers
	rest    []int64   // by column, the bytes of unplaced buffers
	slack   []int64   // by column, the bytes that can still be wasted
	crossed []int32   // by column, the number of unplaced lifetimes that extend beyond it
	rows    [][]int32 // by column, its buffers, approximately in order of least

	dirty  []uint64 // set of columns to be examined again
	edits  []edit   // in order
	failed int32    // the column that failed last, or -1
	dead   *memory  // parts that are known to be impossible
}

// placed is the value of least for a placed buffer.
const placed = math.MaxInt64

// edit is a change to the state that can be undone.
type edit struct {
	what quantity
	at   int32
	was  int64
}

// quantity identifies the value that an edit changed.
type quantity uint8

const (
	ofLow quantity = iota
	ofLeast
	ofTops
	ofSlack
	ofPlaced // placing a buffer, with all related values
)

// newSearcher returns a searcher without placed buffers.
func newSearcher(f *field, capacity int64) *searcher {
	n, columns := len(f.buffers), len(f.rows)
	s := &searcher{
		field: f, capacity: capacity, worth: make([]float64, n),
		low: make([]int64, n), least: make([]int64, n), carrier: make([]int32, n),
		tops: make([]int64, columns), slack: make([]int64, columns),
		rest:    append([]int64(nil), f.load...),
		crossed: append([]int32(nil), f.crossed...),
		rows:    make([][]int32, columns),
		dirty:   make([]uint64, (columns+63)/64),
		dead:    newMemory(n, columns),
		turns:   math.MaxInt,
	}
	return s
}

// reset undoes everything, so that a run does not depend on earlier ones.
func (s *searcher) reset() {
	s.rewind(0)
	for c, row := range s.field.rows {
		s.rows[c] = append(s.rows[c][:0], row...)
		s.dirty[c/64] |= 1 << (c % 64)
	}
	s.cells, s.failed = 0, -1
	clear(s.dead.columns)
	clear(s.dead.parts)
	for x := range s.buffers {
		s.carrier[x] = int32(x) // none
		s.toggle(int32(x))
	}
}

// place places a buffer on the placed buffers below it.
func (s *searcher) place(x int32) {
	b := &s.buffers[x]
	s.turns--
	s.cells += int64(len(b.near) + 2*b.columns)
	s.toggle(x)
	s.edits = append(s.edits, edit{ofPlaced, x, s.least[x]})
	s.least[x] = placed
	end := s.low[x] + b.size
	for _, span := range b.spans {
		for c := span.Lower; c < span.Upper; c++ {
			s.edits = append(s.edits, edit{ofTops, c, s.tops[c]})
			s.tops[c] = end
			s.rest[c] -= b.size
		}
	}
	for c := b.whole.Lower; c < b.whole.Upper-1; c++ {
		s.crossed[c]--
	}
	s.touch(x)
	for _, y := range b.near {
		if s.low[y] >= end || s.least[y] == placed {
			continue
		}
		s.set(ofLow, y, alignUp(end, s.buffers[y].align))
		if s.least[y] < s.low[y] {
			s.raise(y, s.low[y])
		}
	}
}

// raise raises the lower bound on a buffer's offset.
func (s *searcher) raise(x int32, least int64) {
	s.set(ofLeast, x, alignUp(least, s.buffers[x].align))
	s.touch(x)
}

// set changes low or least of an unplaced buffer.
func (s *searcher) set(what quantity, x int32, to int64) {
	values := s.low
	if what == ofLeast {
		values = s.least
	}
	s.edits = append(s.edits, edit{what, x, values[x]})
	s.toggle(x)
	values[x] = to
	s.toggle(x)
}

// touch marks the columns of a buffer to be examined again.
func (s *searcher) touch(x int32) {
	for _, w := range s.buffers[x].over {
		s.dirty[w.at] |= w.bits
	}
}

// rewind undoes all edits except the first ones, keep in number.
func (s *searcher) rewind(keep int) {
	for k := len(s.edits) - 1; k >= keep; k-- {
		switch e := s.edits[k]; e.what {
		case ofLow:
			s.toggle(e.at)
			s.low[e.at] = e.was
			s.toggle(e.at)
		case ofLeast:
			s.toggle(e.at)
			s.least[e.at] = e.was
			s.toggle(e.at)
		case ofTops:
			s.tops[e.at] = e.was
		case ofSlack:
			s.slack[e.at] = e.was
		case ofPlaced:
			s.least[e.at] = e.was
			s.toggle(e.at)
			b := &s.buffers[e.at]
			for _, span := range b.spans {
				for c := span.Lower; c < span.Upper; c++ {
					s.rest[c] += b.size
				}
			}
			for c := b.whole.Lower; c < b.whole.Upper-1; c++ {
				s.crossed[c]++
			}
		}
	}
	s.edits = s.edits[:keep]
	clear(s.dirty)
}

// alignUp returns the first multiple of align at or above offset. Align is a power of two; 0 means 1.
func alignUp(offset, align int64) int64 {
	if align > 1 {
		offset = (offset + align - 1) &^ (align - 1)
	}
	return offset
}
