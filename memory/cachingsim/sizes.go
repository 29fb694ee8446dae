package cachingsim

// The constants of the allocator, in bytes.
const (
	minBlock     = 512      // the size of every block is a multiple of it
	smallSize    = 1 << 20  // the largest size of the small pool
	smallSegment = 2 << 20  // a segment of the small pool
	largeSegment = 20 << 20 // a segment of the large pool, for sizes below ownSegment
	ownSegment   = 10 << 20 // the smallest block size that gets a separate segment
	roundLarge   = 2 << 20  // the size of a separate segment is a multiple of it
)

// roundSize returns the minimum size of the block for a request.
func roundSize(bytes int64) int64 { return max(minBlock, roundUp(bytes, minBlock)) }

// segmentSize returns the size of the segment that is allocated for a block of the given size.
func segmentSize(size int64) int64 {
	switch {
	case size <= smallSize:
		return smallSegment
	case size < ownSegment:
		return largeSegment
	}
	return roundUp(size, roundLarge)
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
