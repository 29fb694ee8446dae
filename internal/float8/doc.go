// Package float8 is the host's arithmetic in eight bits and fewer: exact decoding, encoding
// with one rounding, matrices that are quantized by blocks, and their product.
//
// [Format] describes a format by its fields; [E4M3], [E5M2] and [E2M1] are the element
// formats and [E8M0] is that of scales. Encoding takes a float32, which every narrower
// source (bfloat16, float16) is exactly; a float64 goes through [Odd], so that no value
// is ever rounded twice. The nearest code wins, and of two nearest the even one;
// [Format.Stochastic] takes the upper one with the probability of the distance from the
// lower one. The caller chooses what becomes of values above the greatest finite one ([Overflow]).
//
// A [Matrix] is codes and scales as they lie in memory. [Set] is the instruction set that
// quantizes, decodes and multiplies; all have the same bits. The product says its
// definition in product.go.
//
// All functions are pure. Tables are built once and never change.
package float8

//go:generate go run ../neon/translate amax_avx2_amd64.s blocks_avx2_amd64.s columns_avx2_amd64.s decode_avx2_amd64.s encode_avx2_amd64.s
//go:generate go run ../neon/translate pack_avx2_amd64.s product_avx2_amd64.s random_avx2_amd64.s stream_amd64.s transpose_amd64.s
