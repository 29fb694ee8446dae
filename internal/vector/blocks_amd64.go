//go:build amd64 && !purego

package vector

// mulAdd cuts c into columns of two registers, these into tiles of as many rows as
// fill the other registers, and what is left into single rows.
func (s Set) mulAdd(c []float32, ldc int, a, b Matrix, m, n, k int, form Form, accumulate bool) bool {
	if s == Portable {
		return false
	}
	rows, wide := 8, 32
	if s == AVX2 {
		rows, wide = 4, 16
	}
	for j := 0; j < n; j += wide {
		cols := min(wide, n-j)
		i := 0
		for ; i+rows <= m; i += rows {
			begin, length, head, tail := 0, k, 0, 0
			switch form {
			case Lower:
				length, tail = i, 1
			case Upper:
				begin, length, head = i, k-i-rows, 1
			}
			to, x, y := &c[i*ldc+j], &a.Data[i*a.Row+begin*a.Col], &b.Data[begin*b.Row+j]
			if s == AVX512 {
				tileAVX512(to, ldc, x, a.Row, a.Col, y, b.Row, cols, head, length, tail, accumulate)
			} else {
				tileAVX2(to, ldc, x, a.Row, a.Col, y, b.Row, cols, head, length, tail, accumulate)
			}
		}
		for ; i < m; i++ {
			begin, end := rowRange(form, i, k)
			to, x, y := &c[i*ldc+j], &a.Data[i*a.Row+begin*a.Col], &b.Data[begin*b.Row+j]
			if s == AVX512 {
				rowAVX512(to, ldc, x, a.Row, a.Col, y, b.Row, cols, 0, end-begin, 0, accumulate)
			} else {
				rowAVX2(to, ldc, x, a.Row, a.Col, y, b.Row, cols, 0, end-begin, 0, accumulate)
			}
		}
	}
	return true
}

// transposeBlocks transposes whole blocks of 8×8 and returns how many rows and
// columns they cover.
func (s Set) transposeBlocks(dst []float32, ldd int, src []float32, lds, rows, cols int) (r, c int) {
	r, c = rows&^7, cols&^7
	if s == Portable || r == 0 || c == 0 {
		return 0, 0
	}
	transposeAVX2(&dst[0], ldd, &src[0], lds, r, c)
	return r, c
}

// dropoutGroups does whole groups of blocks and returns how many elements they have.
func (s Set) dropoutGroups(y, x []float32, draws Philox, block uint64, limit uint32, keep float32) int {
	switch s {
	case AVX512:
		n := len(y) &^ 31
		dropoutAVX512(first(y), first(x), n, block, draws.Seed, draws.Stream, limit, keep)
		return n
	case AVX2:
		n := len(y) &^ 15
		dropoutAVX2(first(y), first(x), n, block, draws.Seed, draws.Stream, limit, keep)
		return n
	}
	return 0
}

// drawGroups makes whole groups of draws and returns how many draws they are.
func (s Set) drawGroups(dst []uint32, draws Philox, block, step uint64) int {
	switch {
	case s == AVX512 && len(dst) >= 32:
		drawsAVX512(&dst[0], len(dst)/32, block, step, draws.Seed, draws.Stream)
		return len(dst) &^ 31
	case s == AVX2 && len(dst) >= 16:
		drawsAVX2(&dst[0], len(dst)/16, block, step, draws.Seed, draws.Stream)
		return len(dst) &^ 15
	}
	return 0
}
