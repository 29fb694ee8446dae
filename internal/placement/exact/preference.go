package exact

import (
	"cmp"
	"math"
	"math/rand/v2"
)

// preference determines the choices made in a run.
type preference struct {
	columns  columnOrder
	stubborn bool // continues at the column that failed last
	buffers  bufferOrder
	noise    float64 // relative error added to the value of a buffer
	seed     uint64  // of the noise
}

// columnOrder selects the column at which a run continues.
type columnOrder uint8

const (
	fullest  columnOrder = iota // the column with the most unplaced bytes
	scarcest                    // the column with the fewest bytes to waste
	between                     // a combination of fullest and scarcest
	lowest                      // the column with the lowest top
	anywhere                    // the column in which a buffer can be placed lowest
)

// bufferOrder selects the buffer that a run tries first among those that can be placed equally
// low.
type bufferOrder uint8

const (
	longest   bufferOrder = iota // the longest lifetime
	widest                       // the most columns
	wideLarge                    // many columns, weighted by size
	largest                      // the most bytes
	area                         // the largest product of bytes and time
)

// preferences lists the preferences of the first runs.
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

// preferenceOf returns the preference of a run: one of the above, and later a random one.
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

// values sets the value of each buffer under a preference. Products are rounded before they are added, so
// that all processors compute the same values.
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

// choose returns the buffer that a run prefers to place next within a range of columns.
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

// stuck reports whether the run continues at the column that failed last.
func (s *searcher) stuck(lower, upper int32) bool {
	return s.preference.stubborn && s.failed >= lower && s.failed < upper && s.rest[s.failed] > 0
}

// sooner reports whether column c comes before d.
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

// best returns the best unplaced buffer of a column or the given one, whichever is better. The given one
// may be -1 for none.
func (s *searcher) best(c, than int32) int32 {
	s.cells += int64(len(s.rows[c]))
	for _, x := range s.rows[c] {
		if s.least[x] != placed && (than < 0 || s.better(x, than)) {
			than = x
		}
	}
	return than
}

// better reports whether buffer x should be tried before y.
func (s *searcher) better(x, y int32) bool {
	if free := s.least[x] == s.low[x]; free != (s.least[y] == s.low[y]) {
		return free
	}
	return cmp.Or(cmp.Compare(s.least[x], s.least[y]), cmp.Compare(s.worth[y], s.worth[x]),
		cmp.Compare(s.buffers[y].size, s.buffers[x].size), cmp.Compare(x, y)) < 0
}
