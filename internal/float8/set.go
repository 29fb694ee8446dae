package float8

import "github.com/weir-ml/weir/internal/vector"

// Set is an instruction set.
type Set uint8

// The sets. AVX2 includes FMA and F16C, which every processor with AVX2 and FMA has,
// AVX512 the parts F, BW, DQ and VL. Naming one that the processor lacks ends the program
// with an illegal instruction. All give the same bits.
const (
	Portable Set = iota
	AVX2
	AVX512
	NEON = AVX2 // on arm64, the same code in pairs of registers
)

// String returns the name in lower case.
func (s Set) String() string { return vector.Set(s).String() }
