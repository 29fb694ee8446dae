package float8

import "github.com/weir-ml/weir/internal/vector"

// Set is an instruction set.
type Set uint8

// The sets. AVX2 includes FMA and F16C, which every processor with AVX2 and FMA has, and AVX512
// includes the parts F, BW, DQ and VL. Using a set that the processor lacks ends the program
// with an illegal instruction. All sets give the same bits.
const (
	Portable Set = iota
	AVX2
	AVX512
	NEON = AVX2 // the same code on arm64, with pairs of registers
)

// String returns the name in lower case.
func (s Set) String() string { return vector.Set(s).String() }
