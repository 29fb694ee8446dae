// Package gemm computes the host's matrix product on one thread: C = A·B or C += A·B, with
// either operand transposed, using the vector instructions that the caller selects.
//
// Every element of C is computed as one chain of additions, in ascending order of k, that starts at 0 or at its
// previous value. An element is therefore a function of only its row of A and its column of B: blocks, edges,
// transposes and other rows and columns do not change a bit, and a caller that divides C into parts gets the
// same bits as for the whole. With AVX2, AVX-512 and NEON a multiplication and its addition round once (FMA),
// and all three give the same bits. Plain Go rounds the product first, on every architecture, which gives
// different bits. In both cases the error is at most γ(k+1)·(|c| + Σ|a|·|b|) + (k+1)·2^-150, where γ(n) is
// n·u/(1-n·u) and u is 2^-24, as long as nothing overflows (Higham, Accuracy and Stability of Numerical
// Algorithms, section 3.1); the second term covers values below the smallest normal number. Infinities and NaN
// propagate as in the definition: no product is skipped because a factor is zero.
//
// The blocks follow Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication
// (2008), with the roles of A and B exchanged: a block of B is packed in the second-level cache,
// a tile of a few rows of A is in the first-level cache, and the tile sweeps over the block (see
// sweepArgs). If A has few rows, a copy of B costs more than it saves: see shouldPack,
// multiplyTransposed and multiplyStreamed. Edges are tiles with fewer rows, for which there is
// separate code, and masks for columns that do not exist.
package gemm

//go:generate go run ../neon/translate copy_amd64.s sweep256_amd64.s
