package float8

// Data in memory are processed in a different order than data in a cache: columns a page apart
// are first read row by row, which is the fastest order for memory, and whole lines are written
// past the caches, which would otherwise read them first. The results have the same bits.
const (
	// beyondL2 is the number of float32 elements beyond which data may not fit in a second-level
	// cache, and beyondL3 the same for a core's share of the third-level cache.
	beyondL2 = 1 << 18
	beyondL3 = 1 << 21
	// panel is the number of columns for which a strip of rows fits in the second-level cache.
	panel = 1024
	// line is the number of bytes that are read from or written to memory at a time.
	line = 64
)

// read brings the first cols elements of each of n rows of x into the second-level cache.
func (s Set) read(x []float32, stride, n, cols int) {
	for i := range n {
		s.Amax(x[i*stride:][:cols])
	}
}
