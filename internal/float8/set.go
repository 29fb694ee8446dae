package float8

// Set is an instruction set.
type Set uint8

// The sets. AVX2 includes FMA and F16C, which every processor with AVX2 and FMA has,
// AVX512 the parts F, BW, DQ and VL. Naming one that the processor lacks ends the program
// with an illegal instruction. All give the same bits.
const (
	Portable Set = iota
	AVX2
	AVX512
)

// String returns the name in lower case.
func (s Set) String() string { return [...]string{"portable", "avx2", "avx512"}[s] }
