package kernels

import (
	"fmt"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Instructions is the instruction set of a [Host].
type Instructions uint8

// The instruction sets. AVX2, AVX512 and NEON give the same bits in every operation. Portable
// gives different bits, which are the same on every architecture.
const (
	BestInstructions Instructions = iota // the best set that the processor supports
	Portable                             // plain Go
	AVX2                                 // AVX2 and FMA
	AVX512                               // AVX-512 F, BW, DQ and VL
	NEON                                 // available on every arm64 processor
)

// String returns the set's name in lower case.
func (i Instructions) String() string {
	if i <= NEON {
		return [...]string{"best", "portable", "avx2", "avx512", "neon"}[i]
	}
	return "instructions(?)"
}

// Available reports whether the processor, the system and the build support the set. The build
// tag noavx512 removes AVX512, and purego removes all but Portable.
func (i Instructions) Available() bool {
	available := [...]bool{BestInstructions: true, Portable: true, AVX2: cpufeature.AVX2FMA, AVX512: cpufeature.AVX512, NEON: cpufeature.NEON}
	return i <= NEON && available[i]
}

// resolve replaces BestInstructions by the best available set.
func (i Instructions) resolve() Instructions {
	for best := NEON; i == BestInstructions; best-- {
		if best.Available() {
			return best
		}
	}
	return i
}

// validate returns an error if the set is not available.
func (i Instructions) validate() error {
	if !i.Available() {
		return fmt.Errorf("%w: Instructions is %s, which this processor or this build does not have", ErrValue, i)
	}
	return nil
}

// level returns the corresponding set of package vector, in which NEON has the same value as
// AVX2. i must be resolved.
func (i Instructions) level() vector.Set {
	if i == NEON {
		return vector.NEON
	}
	return vector.Set(i - Portable)
}
