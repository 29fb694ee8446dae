package placement

import "math"

// searcher is the state of a run: what is placed, and bounds for what is not. A buffer
// that is not placed will lie above all that are placed and share a column with it, so
// that columns fill from below.
type searcher struct {
	*field
	capacity int64
	taste    taste
	worth    []float64 // of buffers, to the taste
	nodes    int64     // visited
	limit    int64     // of nodes
	idle     func() bool

	low     []int64   // by buffer, the end of what is placed below it; of a placed one, its offset
	least   []int64   // by buffer, no offset is lower; placed where it has one
	carrier []int32   // by buffer, one on which it may come to lie
	tops    []int64   // by column, the end of what is placed
	rest    []int64   // by column, bytes that are not placed
	slack   []int64   // by column, bytes that can be wasted still
	crossed []int32   // by column, how many lives of those not placed reach over its end
	rows    [][]int32 // by column, its buffers, about in order of least

	dirty []uint64 // columns that are to be looked at again, a set
	edits []edit   // the last one at the end
}

// placed is the least offset of a buffer that has its place.
const placed = math.MaxInt64

// edit is a change of the state that can be taken back.
type edit struct {
	what quantity
	at   int32
	was  int64
}

// quantity is what an edit changed.
type quantity uint8

const (
	ofLow quantity = iota
	ofLeast
	ofTops
	ofSlack
	ofPlaced // and what comes with it
)

// newSearcher returns a searcher that has placed nothing.
func newSearcher(f *field, capacity int64) *searcher {
	n, columns := len(f.buffers), len(f.columns)
	s := &searcher{
		field: f, capacity: capacity,
		low: make([]int64, n), least: make([]int64, n), carrier: make([]int32, n),
		tops: make([]int64, columns), slack: make([]int64, columns),
		rest:    append([]int64(nil), f.load...),
		crossed: append([]int32(nil), f.crossed...),
		rows:    make([][]int32, columns),
		worth:   make([]float64, n),
		dirty:   make([]uint64, (columns+63)/64),
	}
	for c := range columns {
		s.rows[c] = append([]int32(nil), f.columns[c]...)
	}
	return s
}

// place puts a buffer on what is placed below it.
func (s *searcher) place(x int32) {
	s.nodes++
	s.edits = append(s.edits, edit{ofPlaced, x, s.least[x]})
	s.least[x] = placed
	b := &s.buffers[x]
	end := s.low[x] + b.size
	for _, span := range b.spans {
		for c := span.lower; c < span.upper; c++ {
			s.edits = append(s.edits, edit{ofTops, c, s.tops[c]})
			s.tops[c] = end
			s.rest[c] -= b.size
		}
	}
	for c := b.whole.lower; c < b.whole.upper-1; c++ {
		s.crossed[c]--
	}
	s.touch(x)
	for _, y := range b.near {
		if s.low[y] >= end || s.least[y] == placed {
			continue
		}
		s.edits = append(s.edits, edit{ofLow, y, s.low[y]})
		s.low[y] = alignUp(end, s.buffers[y].align)
		if s.least[y] < s.low[y] {
			s.raise(y, s.low[y])
		}
	}
}

// raise sets the least offset of a buffer.
func (s *searcher) raise(x int32, least int64) {
	s.edits = append(s.edits, edit{ofLeast, x, s.least[x]})
	s.least[x] = alignUp(least, s.buffers[x].align)
	s.touch(x)
}

// touch has the columns of a buffer looked at.
func (s *searcher) touch(x int32) {
	for _, w := range s.buffers[x].over {
		s.dirty[w.at] |= w.bits
	}
}

// rewind takes back all edits but the first ones.
func (s *searcher) rewind(keep int) {
	for k := len(s.edits) - 1; k >= keep; k-- {
		switch e := s.edits[k]; e.what {
		case ofLow:
			s.low[e.at] = e.was
		case ofLeast:
			s.least[e.at] = e.was
		case ofTops:
			s.tops[e.at] = e.was
		case ofSlack:
			s.slack[e.at] = e.was
		case ofPlaced:
			s.least[e.at] = e.was
			b := &s.buffers[e.at]
			for _, span := range b.spans {
				for c := span.lower; c < span.upper; c++ {
					s.rest[c] += b.size
				}
			}
			for c := b.whole.lower; c < b.whole.upper-1; c++ {
				s.crossed[c]++
			}
		}
	}
	s.edits = s.edits[:keep]
	clear(s.dirty)
}
