// Package vector is the host's arithmetic over slices of float32, with the widest instructions
// that a [Set] allows: assembly with AVX-512 or AVX2 on amd64 and with NEON on arm64, and plain
// Go elsewhere.
//
// Every function accesses only its slices and allocates nothing. The bits of an element do not
// depend on its position, at the beginning of a slice or in its tail, nor on the length. The
// order of a sum depends on the length alone: elements i, i+8, i+16, ... are added to number i
// of eight partial sums, which are then added in halves.
//
// AVX2, AVX512 and NEON give the same bits. Portable gives the same bits on every architecture,
// but different ones, because the assembly rounds a product and a sum once and plain Go rounds
// twice: explicit conversions, as in float32(x*y) + z, prevent the compiler from rounding once
// on arm64 and others. Sums in float64 ([Set.Total], [Set.Squares], [Set.Dot]) and
// [Set.Dropout] are the same in all sets.
//
// NaN and infinities propagate as in the formulas. Denormal numbers are computed exactly like
// others, except for the results of exponentials: below the smallest normal number they are 0.
package vector

//go:generate go run ./gen
