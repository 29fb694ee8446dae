//go:build !purego

package fmapeak

import (
	"time"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
)

//go:noescape
func loop512(rounds int)

//go:noescape
func loop256(rounds int)

// chains is the number of multiply-add instructions in a round.
const chains = 12

// GFLOPS returns the highest rate of several runs of a loop that only multiplies and adds vectors
// of lanes float32 on one core, or 0 if lanes is not 8 or 16 or the processor has no such
// vectors.
func GFLOPS(lanes int) float64 {
	const rounds = 200_000 // about a millisecond
	loop := loop512
	switch {
	case lanes == 16 && cpufeature.AVX512:
	case lanes == 8 && cpufeature.AVX2FMA:
		loop = loop256
	default:
		return 0
	}
	var best float64
	for range 40 {
		start := time.Now()
		loop(rounds)
		best = max(best, float64(2*lanes*chains*rounds)/float64(time.Since(start).Nanoseconds()))
	}
	return best
}
