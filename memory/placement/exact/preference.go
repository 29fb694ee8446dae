package exact

import (
	"cmp"
	"math"
	"math/rand/v2"
)

// preference is what a run prefers where it has a choice.
type preference struct {
	columns  columnOrder
	stubborn bool // goes on at the column that failed last
	buffers  bufferOrder
	noise    float64 // how far off the worth of a buffer may be, as a fraction of it
	seed     uint64  // of the noise
}

// columnOrder is at which column a run goes on.
type columnOrder uint8

const (
	fullest  columnOrder = iota // the one with the most left to place
	scarcest                    // the one with the least to waste
	between                     // fullest and scarcest in one
	lowest                      // the one whose top is lowest
	anywhere                    // where a buffer can lie lowest
)

// bufferOrder is which of the buffers a run tries first that can lie equally low.
type bufferOrder uint8

const (
	longest   bufferOrder = iota // lives longest
	widest                       // is alive at the most columns
	wideLarge                    // is alive at many columns, and size counts too
	largest                      // has the most bytes
	area                         // has the most bytes times time
)

// preferences are those of the first runs.
var preferences = [...]preference{
	{columns: fullest, buffers: longest},
	{columns: scarcest, buffers: longest},
	{columns: fullest, buffers: largest},
	{columns: lowest, buffers: widest},
	{columns: scarcest, buffers: widest},
	{columns: fullest, buffers: longest, stubborn: true},
	{columns: anywhere, buffers: wideLarge},
	{columns: anywhere, buffers: widest},
}

// preferenceOf returns the preference of a run: one of the above, and then one drawn by lot.
func preferenceOf(run int64, seed uint64) preference {
	if run < int64(len(preferences)) {
		return preferences[run]
	}
	lot := rand.New(rand.NewPCG(seed, uint64(run)))
	return preference{
		columns:  [...]columnOrder{fullest, fullest, fullest, fullest, between, scarcest}[lot.IntN(6)],
		stubborn: lot.IntN(2) == 0,
		buffers:  [...]bufferOrder{longest, longest, widest, widest, largest, largest, area, wideLarge}[lot.IntN(8)],
		noise:    [...]float64{0.03, 0.15, 0.3}[lot.IntN(3)],
		seed:     lot.Uint64(),
	}
}

// values sets what each buffer is worth to a preference. If something is added the
// product before it is rounded first, so that all processors come to the same.
func (t preference) values(f *field, worth []float64) {
	lot := rand.New(rand.NewPCG(t.seed, 0))
	for i := range f.buffers {
		b := &f.buffers[i]
		length, width, size := b.length, float64(b.columns), float64(b.size)
		switch t.buffers {
		case longest:
			worth[i] = length
		case widest:
			worth[i] = width
		case wideLarge:
			worth[i] = width * math.Sqrt(size)
		case largest:
			worth[i] = size
		case area:
			worth[i] = length * size
		}
		if t.noise > 0 {
			worth[i] *= 1 + float64(t.noise*(float64(2*lot.Float64())-1))
		}
	}
}

// choose returns the buffer that a run would like to place next within columns.
func (s *searcher) choose(lower, upper int32) int32 {
	if s.preference.columns == anywhere && !s.stuck(lower, upper) {
		best := int32(-1)
		for c := lower; c < upper; c++ {
			best = s.best(c, best)
		}
		return best
	}
	at := lower
	for c := lower + 1; c < upper; c++ {
		if s.rest[c] > 0 && (s.rest[at] == 0 || s.sooner(c, at)) {
			at = c
		}
	}
	if s.stuck(lower, upper) {
		at = s.failed
	}
	return s.best(at, -1)
}

// stuck reports whether the run goes on at the column that failed last.
func (s *searcher) stuck(lower, upper int32) bool {
	return s.preference.stubborn && s.failed >= lower && s.failed < upper && s.rest[s.failed] > 0
}

// sooner compares columns.
func (s *searcher) sooner(c, d int32) bool {
	var order int
	switch s.preference.columns {
	case fullest:
		order = cmp.Compare(s.rest[d], s.rest[c])
	case scarcest:
		order = cmp.Compare(s.slack[c], s.slack[d])
	case between:
		order = cmp.Compare(s.slack[c]-s.rest[c]/2, s.slack[d]-s.rest[d]/2)
	}
	return cmp.Or(order, cmp.Compare(s.tops[c], s.tops[d]), cmp.Compare(s.slack[c], s.slack[d])) < 0
}

// best returns the best buffer of a column, or one that is better; -1 is none.
func (s *searcher) best(c, than int32) int32 {
	s.cells += int64(len(s.rows[c]))
	for _, x := range s.rows[c] {
		if s.least[x] != placed && (than < 0 || s.better(x, than)) {
			than = x
		}
	}
	return than
}

// better compares buffers.
func (s *searcher) better(x, y int32) bool {
	if free := s.least[x] == s.low[x]; free != (s.least[y] == s.low[y]) {
		return free
	}
	return cmp.Or(cmp.Compare(s.least[x], s.least[y]), cmp.Compare(s.worth[y], s.worth[x]),
		cmp.Compare(s.buffers[y].size, s.buffers[x].size), cmp.Compare(x, y)) < 0
}
