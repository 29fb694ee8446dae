package kernels

import "github.com/weir-ml/weir/internal/vector"

// Exported for the tests of this package.

// Philox returns the draw of Philox4x32-10 for a counter of two words and a key.
func Philox(seed, stream, block uint64) [4]uint32 {
	a, b, c, d := vector.Philox{Seed: seed, Stream: stream}.Draw(block)
	return [4]uint32{a, b, c, d}
}

// NullEvents is the most events that a Null keeps.
const NullEvents = nullEvents
