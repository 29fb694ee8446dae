package vector

import (
	"runtime"
	"unsafe"
)

// Set is an instruction set.
type Set uint8

// The sets, each an extension of the previous one. AVX2 includes FMA and BMI2, and AVX512
// includes the parts F, VL, BW and DQ. Using a set that the processor lacks ends the program with
// an illegal instruction.
const (
	Portable Set = iota
	AVX2
	AVX512
	NEON = AVX2 // the same code on arm64, with pairs of registers
)

// String returns the set's name in lower case.
func (s Set) String() string {
	switch s {
	case AVX2:
		if runtime.GOARCH == "arm64" {
			return "neon"
		}
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return "portable"
}

// first returns the address of the first element, for the assembly.
func first(x []float32) *float32 { return unsafe.SliceData(x) }
