// Package float8 implements arithmetic in eight bits and fewer on the host: exact decoding,
// encoding with one rounding, matrices that are quantized by blocks, and their product.
//
// [Format] describes a format by its fields. [E4M3], [E5M2] and [E2M1] are the element formats,
// and [E8M0] is the format of scales. Encoding takes a float32, which represents every narrower
// source (bfloat16, float16) exactly, so no value is ever
// rounded twice. Encoding picks the nearest code; ties go to the even code. [Format.Stochastic]
// picks the upper code with a probability proportional to the distance from the lower one. The
// caller decides how values above the greatest finite one are encoded ([Overflow]).
//
// A [Matrix] provides access to codes and scales as they are laid out in memory. [Set] is the
// instruction set that quantizes, decodes and multiplies; all sets give the same bits. product.go
// defines the product.
//
// No function has state or changes anything but its arguments. Tables are built once and never
// change.
package float8

//go:generate go run ../neon/translate amax_avx2_amd64.s blocks_avx2_amd64.s columns_avx2_amd64.s decode_avx2_amd64.s encode_avx2_amd64.s
//go:generate go run ../neon/translate pack_avx2_amd64.s product_avx2_amd64.s random_avx2_amd64.s stream_amd64.s transpose_amd64.s
