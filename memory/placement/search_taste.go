package placement

import (
	"cmp"
	"math"
	"math/rand/v2"
)

// taste is what a run prefers where it has a choice.
type taste struct {
	columns columnTaste
	buffers bufferTaste
	noise   float64 // spread of what a buffer is worth
	seed    uint64
	run     uint64
}

// columnTaste is at which column a run goes on.
type columnTaste uint8

const (
	scarcest columnTaste = iota // the one with the least to waste
	fullest                     // the one with the most still to be placed
	between                     // of both
	lowest                      // the one whose top is lowest
	columnTastes
)

// bufferTaste is which of the buffers that can lie equally low a run tries first.
type bufferTaste uint8

const (
	longest     bufferTaste = iota // the one that lives longest
	widest                         // the one that is alive at the most columns
	longLarge                      // as longest, but size counts too
	wideLarge                      // as widest, but size counts too
	largestArea                    // the one of the most bytes times time
	largest                        // the one of the most bytes
	bufferTastes
)

// tastes are those of the first runs, by what they are good for.
var tastes = []taste{
	{columns: fullest, buffers: longest},
	{columns: scarcest, buffers: longest},
	{columns: fullest, buffers: largest},
	{columns: lowest, buffers: widest},
	{columns: scarcest, buffers: widest},
	{columns: fullest, buffers: largestArea},
}

// tasteOf returns the taste of a run.
func tasteOf(run int64, seed uint64) taste {
	if run < int64(len(tastes)) {
		return tastes[run]
	}
	r := rand.New(rand.NewPCG(seed, uint64(run)))
	return taste{
		columns: columnTaste(r.IntN(int(columnTastes))),
		buffers: bufferTaste(r.IntN(int(bufferTastes))),
		noise:   [...]float64{0.02, 0.05, 0.2}[r.IntN(3)],
		seed:    r.Uint64(),
	}
}

// worth sets what each buffer is worth to a taste. Nothing is added up in floating
// point, so that it is the same on every processor.
func (t taste) worth(f *field, worth []float64) {
	r := rand.New(rand.NewPCG(t.seed, 0))
	for i := range f.buffers {
		b := &f.buffers[i]
		var w float64
		switch t.buffers {
		case longest:
			w = b.length
		case widest:
			w = float64(b.columns)
		case longLarge:
			w = b.length * math.Sqrt(float64(b.size))
		case wideLarge:
			w = float64(b.columns) * math.Sqrt(float64(b.size))
		case largestArea:
			w = b.length * float64(b.size)
		case largest:
			w = float64(b.size)
		}
		if t.noise > 0 {
			w *= float64(1 + float64(t.noise*(2*r.Float64()-1)))
		}
		worth[i] = w
	}
}

// choose returns the buffer that a run would like to place next, within columns.
func (s *searcher) choose(lower, upper int32) int32 {
	at := lower
	for c := lower + 1; c < upper; c++ {
		if s.rest[c] > 0 && (s.rest[at] == 0 || s.sooner(c, at)) {
			at = c
		}
	}
	best := int32(-1)
	for _, x := range s.rows[at] {
		if s.least[x] != placed && (best < 0 || s.better(x, best)) {
			best = x
		}
	}
	return best
}

// sooner compares columns.
func (s *searcher) sooner(c, d int32) bool {
	var order int
	switch s.taste.columns {
	case scarcest:
		order = cmp.Compare(s.slack[c], s.slack[d])
	case fullest:
		order = cmp.Compare(s.rest[d], s.rest[c])
	case between:
		order = cmp.Compare(s.slack[c]-s.rest[c]/2, s.slack[d]-s.rest[d]/2)
	}
	return cmp.Or(order, cmp.Compare(s.tops[c], s.tops[d]), cmp.Compare(s.slack[c], s.slack[d])) < 0
}

// better compares buffers.
func (s *searcher) better(x, y int32) bool {
	if free := s.least[x] == s.low[x]; free != (s.least[y] == s.low[y]) {
		return free
	}
	if s.least[x] != s.least[y] {
		return s.least[x] < s.least[y]
	}
	if s.worth[x] != s.worth[y] {
		return s.worth[x] > s.worth[y]
	}
	if s.buffers[x].size != s.buffers[y].size {
		return s.buffers[x].size > s.buffers[y].size
	}
	return x < y
}
