package vector

// Transpose writes the transpose of src (rows×cols, with lds elements between rows) to dst
// (cols×rows, with ldd elements between rows).
func (s Set) Transpose(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	_, _ = dst[(cols-1)*ldd+rows-1], src[(rows-1)*lds+cols-1]
	r, c := rows&^7, cols&^7
	if s == Portable || r == 0 || c == 0 {
		r, c = 0, 0
	} else {
		transpose8(&dst[0], ldd, &src[0], lds, r, c)
	}
	if c < cols {
		transposePortable(dst[c*ldd:], ldd, src[c:], lds, r, cols-c)
	}
	if r < rows {
		transposePortable(dst[r:], ldd, src[r*lds:], lds, rows-r, cols)
	}
}

// transposePortable processes four rows at a time, so that its writes are contiguous.
func transposePortable(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	i := 0
	for ; i+4 <= rows; i += 4 {
		r0 := src[i*lds:][:cols]
		r1 := src[(i+1)*lds:][:cols]
		r2 := src[(i+2)*lds:][:cols]
		r3 := src[(i+3)*lds:][:cols]
		o := i
		for l, v := range r0 {
			d := dst[o : o+4 : o+4]
			d[0], d[1], d[2], d[3] = v, r1[l], r2[l], r3[l]
			o += ldd
		}
	}
	for ; i < rows; i++ {
		o := i
		for _, v := range src[i*lds:][:cols] {
			dst[o] = v
			o += ldd
		}
	}
}
