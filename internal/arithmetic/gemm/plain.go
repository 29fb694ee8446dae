package gemm

// sweepPlain is the sweep in Go. It computes tiles of 4×4 sums, and the rest element by element.
// The conversions prevent the compiler from fusing a product and its addition, so that the bits
// are the same on every architecture.
func sweepPlain(rows, depth, width int, a tile, b block, c []float32, stride int, add bool) {
	const side = 4
	for j := 0; j < width; j += side {
		panel := b.data[j/side*b.panel:]
		if rows == side && width-j >= side {
			plain4x4(depth, a, panel, b.depth, c[j:], stride, add)
			continue
		}
		for i := range rows {
			for jj := range min(side, width-j) {
				at := i*stride + j + jj
				var s float32
				if add {
					s = c[at]
				}
				for l := range depth {
					s += float32(a.data[i*a.row+l*a.depth] * panel[l*b.depth+jj])
				}
				c[at] = s
			}
		}
	}
}

func plain4x4(depth int, a tile, b []float32, bDepth int, c []float32, stride int, add bool) {
	var s [4][4]float32
	if add {
		for i := range s {
			s[i] = [4]float32(c[i*stride:])
		}
	}
	for l := range depth {
		row := (*[4]float32)(b[l*bDepth:])
		for i := range s {
			x := a.data[i*a.row+l*a.depth]
			s[i][0] += float32(x * row[0])
			s[i][1] += float32(x * row[1])
			s[i][2] += float32(x * row[2])
			s[i][3] += float32(x * row[3])
		}
	}
	for i := range s {
		copy(c[i*stride:][:4], s[i][:])
	}
}

// transposePlain writes the transpose of rows×cols elements of src to dst.
func transposePlain(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	for i := range rows {
		o := i
		for _, v := range src[i*srcStride:][:cols] {
			dst[o] = v
			o += dstStride
		}
	}
}

// copyPlain copies rows×cols elements.
func copyPlain(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	for i := range rows {
		copy(dst[i*dstStride:][:cols], src[i*srcStride:][:cols])
	}
}

// spreadPlain copies a row into panels of panel columns that are dstPanel elements apart.
func spreadPlain(dst []float32, dstPanel int, src []float32, panel int) {
	for at := 0; ; at += dstPanel {
		copy(dst[at:][:panel], src)
		if len(src) <= panel {
			return
		}
		src = src[panel:]
	}
}
