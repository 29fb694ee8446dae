package float8

import "github.com/weir-ml/weir/internal/arithmetic/vector"

// Set is an instruction set of package vector, with the operations of this package.
type Set vector.Set

// The sets. AVX2 includes FMA and F16C, which every processor with AVX2 and FMA has, and AVX512
// includes the parts F, BW, DQ and VL. Using a set that the processor lacks ends the program
// with an illegal instruction. All sets give the same bits.
const (
	Portable = Set(vector.Portable)
	AVX2     = Set(vector.AVX2)
	AVX512   = Set(vector.AVX512)
	NEON     = Set(vector.NEON) // the same code on arm64, with pairs of registers
)

// String returns the name in lower case.
func (s Set) String() string { return vector.Set(s).String() }
