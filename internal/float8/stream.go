package float8

// Data in memory is processed in a different order than data in a cache: columns a page apart
// are first read row by row, which is the fastest order for memory, and whole lines are written
// past the caches, which would otherwise read them first. The results have the same bits.
const (
	// beyondL2 is a number of float32 that may exceed a second-level cache, and beyondL3 one
	// that may exceed a core's share of the third-level cache.
	beyondL2 = 1 << 18
	beyondL3 = 1 << 21
	// panel is the number of columns of a strip of rows that fit in the second-level cache.
	panel = 1024
	// line is the number of bytes that memory reads and writes at once.
	line = 64
)

// read brings n rows of x, cols of each, into the second-level cache.
func (s Set) read(x []float32, stride, n, cols int) {
	for i := range n {
		s.Amax(x[i*stride:][:cols])
	}
}
