package vector

// Form says which elements of A take part in a product of tiles. The others are not read, and the
// factors that they would multiply may be NaN.
type Form uint8

// The forms. Lower and Upper include the diagonal and require a square A.
const (
	Full Form = iota
	Lower
	Upper
)

// Matrix is an operand of MulAdd: element (i, j) is Data[i·Row + j·Col].
type Matrix struct {
	Data     []float32
	Row, Col int
}

// MulAdd sets c to a·b, or adds it to c: a is m×k, b is k×n with Col equal to 1, and c is m×n
// with ldc elements between rows. An element of c is one sum in ascending order of k, regardless
// of its position. If m, n or k is 0, c is left unchanged. MulAdd packs nothing, and is meant for
// operands that fit in the first-level cache.
func (s Set) MulAdd(c []float32, ldc int, a, b Matrix, m, n, k int, form Form, accumulate bool) {
	if m == 0 || n == 0 || k == 0 {
		return
	}
	_, _, _ = c[(m-1)*ldc+n-1], a.Data[(m-1)*a.Row+(k-1)*a.Col], b.Data[(k-1)*b.Row+n-1]
	if s == Portable {
		mulAddPortable(c, ldc, a, b, m, n, k, form, accumulate)
	} else {
		s.mulAdd(c, ldc, a, b, m, n, k, form, accumulate)
	}
}

// mulAdd divides c into column strips two registers wide, each strip into tiles with as many rows
// as fit in the other registers, and the remainder into single rows.
func (s Set) mulAdd(c []float32, ldc int, a, b Matrix, m, n, k int, form Form, accumulate bool) {
	rows, wide := 4*int(s), 16*int(s) // s is AVX2 or AVX512
	for j := 0; j < n; j += wide {
		cols := min(wide, n-j)
		i := 0
		for ; i+rows <= m; i += rows {
			begin, length, head, last := 0, k, 0, 0
			switch form {
			case Lower:
				length, last = i, 1
			case Upper:
				begin, length, head = i, k-i-rows, 1
			}
			to, x, y := &c[i*ldc+j], &a.Data[i*a.Row+begin*a.Col], &b.Data[begin*b.Row+j]
			tile(s, to, ldc, x, a.Row, a.Col, y, b.Row, cols, head, length, last, accumulate)
		}
		for ; i < m; i++ {
			begin, end := rowRange(form, i, k)
			to, x, y := &c[i*ldc+j], &a.Data[i*a.Row+begin*a.Col], &b.Data[begin*b.Row+j]
			row(s, to, ldc, x, a.Row, a.Col, y, b.Row, cols, 0, end-begin, 0, accumulate)
		}
	}
}

// rowRange returns the range of columns that take part in row i of a form.
func rowRange(form Form, i, k int) (begin, end int) {
	switch form {
	case Lower:
		return 0, i + 1
	case Upper:
		return i, k
	}
	return 0, k
}

func mulAddPortable(c []float32, ldc int, a, b Matrix, m, n, k int, form Form, accumulate bool) {
	for i := range m {
		row := c[i*ldc:][:n]
		if !accumulate {
			clear(row)
		}
		begin, end := rowRange(form, i, k)
		for l := begin; l < end; l++ {
			x := a.Data[i*a.Row+l*a.Col]
			for j, y := range b.Data[l*b.Row:][:n] {
				row[j] += float32(x * y)
			}
		}
	}
}
