package vector

// Form says which elements of A take part in a product of tiles. The others are
// not read: what they multiply may be NaN.
type Form uint8

// The forms. Lower and Upper include the diagonal, and A is square.
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

// MulAdd sets c to a·b, or adds it to c: a is m×k, b is k×n with columns one apart,
// c is m×n with rows ldc apart. An element of c is one sum in ascending order of k,
// wherever it lies. It is for operands that fit the first-level cache: nothing is
// packed.
func (s Set) MulAdd(c []float32, ldc int, a, b Matrix, m, n, k int, form Form, accumulate bool) {
	if m == 0 || n == 0 || k == 0 {
		return
	}
	_, _, _ = c[(m-1)*ldc+n-1], a.Data[(m-1)*a.Row+(k-1)*a.Col], b.Data[(k-1)*b.Row+n-1]
	if !s.mulAdd(c, ldc, a, b, m, n, k, form, accumulate) {
		mulAddPortable(c, ldc, a, b, m, n, k, form, accumulate)
	}
}

// rowRange returns which columns of row i of a form take part.
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
				row[j] += x * y
			}
		}
	}
}
