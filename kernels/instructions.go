package kernels

import (
	"fmt"

	"github.com/weir-ml/weir/internal/cpufeature"
)

// Instructions is the instruction set that a [Host] computes with.
type Instructions uint8

// The instruction sets. AVX2, AVX512 and NEON give the same bits in every operation, and
// Portable others, which are the same on every architecture.
const (
	BestInstructions Instructions = iota // the best that the processor has
	Portable                             // plain Go
	AVX2                                 // AVX2 and FMA
	AVX512                               // AVX-512 F, BW, DQ and VL
	NEON                                 // that of every arm64 processor
)

// String returns the name in lower case.
func (i Instructions) String() string {
	switch i {
	case BestInstructions:
		return "best"
	case Portable:
		return "portable"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	case NEON:
		return "neon"
	}
	return "instructions(?)"
}

// Available says whether the processor, the system and the build have them. The
// build tag noavx512 takes AVX512 away, purego all but Portable.
func (i Instructions) Available() bool {
	switch i {
	case BestInstructions, Portable:
		return true
	case AVX2:
		return cpufeature.AVX2FMA
	case AVX512:
		return cpufeature.AVX512
	case NEON:
		return cpufeature.NEON
	}
	return false
}

// resolve turns BestInstructions into what that is here.
func (i Instructions) resolve() Instructions {
	for best := NEON; i == BestInstructions; best-- {
		if best.Available() {
			return best
		}
	}
	return i
}

// validate returns an error where they are not available.
func (i Instructions) validate() error {
	if !i.Available() {
		return fmt.Errorf("%w: Instructions is %s, which this processor or this build does not have", ErrValue, i)
	}
	return nil
}

// level returns what packages vector, float8 and product count them as: NEON is what AVX2
// is on amd64. i is resolved.
func (i Instructions) level() uint8 {
	if i == NEON {
		i = AVX2
	}
	return uint8(i - Portable)
}
