package float8

// transpose writes the transpose of rows×cols elements of src to dst. The strides are the
// distances between rows, in elements.
func (s Set) transpose(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	for i := 0; i < rows; i += 8 {
		to, from, done := dst[i:], src[i*srcStride:], 0
		if s != Portable && i+8 <= rows && cols >= 8 {
			done = cols &^ 7
			transpose8(&to[0], 4*dstStride, &from[0], 4*srcStride, done/8)
		}
		for r := range min(8, rows-i) {
			for c := done; c < cols; c++ {
				to[c*dstStride+r] = from[r*srcStride+c]
			}
		}
	}
}
