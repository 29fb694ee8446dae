// Package vector is the host's arithmetic over slices of float32, with the widest instructions
// that a [Set] allows: assembly with AVX-512 or AVX2 on amd64 and with NEON on arm64, and plain Go
// elsewhere.
//
// Every function reads and writes its slices and nothing beside them, allocates
// nothing, and gives an element the same bits wherever it lies, at the beginning of
// a slice or in its tail, and whatever the length. The order of a sum depends on the
// length alone: elements i, i+8, i+16, ... make number i of eight partial sums, and
// these are added up in halves.
//
// AVX2, AVX512 and NEON give the same bits. Those of Portable are the same on every
// architecture, and others than these, because the assembly rounds a product and a sum
// once and plain Go rounds twice: explicit conversions, as in float32(x*y) + z, keep
// the compiler from rounding once on arm64 and others. Sums in
// float64 ([Set.Total], [Set.Squares], [Set.Dot]) and [Set.Dropout] are the same in
// all.
//
// NaN and infinities come through wherever the formula makes them. Denormal
// numbers count as what they are, but for the results of exponentials: below the
// smallest normal number they are 0.
package vector

//go:generate go run ./gen
