// Package vector is the host's arithmetic over slices of float32, with the widest instructions
// that a [Set] allows: assembly with AVX-512 or AVX2 on amd64 and with NEON on arm64, and plain
// Go elsewhere.
//
// Every function accesses only its slices and allocates nothing. The bits of an element do not depend on the
// length of the slice or on the element's position, whether at the beginning or in the tail. The order of a sum
// depends only on the length: elements i, i+8, i+16, ... are added to partial sum i of eight, and the eight
// sums are then added pairwise by halves.
//
// AVX2, AVX512 and NEON give the same bits. Portable gives the same bits on every architecture,
// but different ones, because the assembly rounds a product and a sum once and plain Go rounds
// twice: explicit conversions, as in float32(x*y) + z, prevent the compiler from rounding once
// on arm64 and others. Sums in float64 ([Set.Total], [Set.Squares], [Set.Dot]) and
// [Set.Dropout] are the same in all sets.
//
// NaN and infinities propagate as in the formulas. Denormal numbers are treated like all others,
// except that the result of an exponential is 0 if it would be below the smallest normal number.
package vector

//go:generate go run ./gen
