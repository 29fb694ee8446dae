package float8

// What lies in memory is treated in another way than what lies in a cache: columns a page
// apart are read row after row first, which is what memory is fast at, and whole lines are
// written past the caches, which would read them before. All bits are the same.
const (
	// beyondL2 is as many float32 as a second-level cache may not hold, beyondL3 as a
	// core's share of the third-level one.
	beyondL2 = 1 << 18
	beyondL3 = 1 << 21
	// panel is how many columns of a strip of rows the second-level cache holds.
	panel = 1024
	// line is the bytes that memory reads and writes at once.
	line = 64
)

// read brings n rows of x, cols of each, into the second-level cache.
func (s Set) read(x []float32, stride, n, cols int) {
	for i := range n {
		s.Amax(x[i*stride:][:cols])
	}
}
