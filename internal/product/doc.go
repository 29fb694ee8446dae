// Package product is the host's matrix product, on one thread: C = A·B, C += A·B, either
// operand transposed, with the vector instructions that it is told to use.
//
// Every element of C is one chain of additions, in ascending order of k, that
// begins at 0 or at what C had. So it is a function of its row of A and its column
// of B alone: blocks, edges, transposes and the other rows and columns change no bit,
// and whoever cuts C into parts gets the bits of the whole. With AVX2, AVX-512 and
// NEON an addition and its product are one rounding (FMA), and all give the same bits;
// in plain Go the product is rounded first, on every architecture, which gives
// others. In both the error is at most γ(k+1)·(|c| + Σ|a|·|b|) + (k+1)·2^-150, where
// γ(n) is n·u/(1-n·u) and u is 2^-24, as long as nothing overflows (Higham, Accuracy
// and Stability of Numerical Algorithms, section 3.1); the second term is there for
// what is below the smallest normal number. Infinities and NaN spread as in the
// definition: no product is left out for a zero.
//
// The blocks follow Goto and van de Geijn, Anatomy of High-Performance Matrix
// Multiplication (2008), with the roles of A and B turned: a block of B lies packed
// in the second-level cache, a tile of a few rows of A in the first, and the tile
// sweeps over the block (see sweepArgs). With few rows of A a copy of B costs more than
// it saves: see packs, turned and streamed. Edges are tiles with fewer rows, for which
// there is code of their own, and masks for columns that do not exist.
package product

//go:generate go run ../neon/translate copy_amd64.s sweep256_amd64.s
