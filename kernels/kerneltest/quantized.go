package kerneltest

import (
	"math"

	"github.com/weir-ml/weir/kernels"
)

// none allocates a matrix without quantizing into it.
func (l *lab) none(e kernels.Encoding, rows, cols int) kernels.Quantized {
	fill := make([]byte, e.Bytes(rows, cols))
	for i := range fill {
		fill[i] = 0xa5
	}
	return kernels.Quantized{Data: l.putBytes("a quantized matrix", fill), Encoding: e, Rows: rows, Cols: cols}
}

// quantized returns x in an encoding.
func (l *lab) quantized(e kernels.Encoding, x []float32, rows, cols int) kernels.Quantized {
	op := kernels.Quantize{X: l.put("X", x), Rows: rows, Cols: cols, Rowwise: l.none(e, rows, cols)}
	l.do("Quantize", func() error { return l.d.Quantize(op) }, op.Rowwise.Data)
	return op.Rowwise
}

// keep records bits, and compares them with those of plain Go.
func (l *lab) keep(title string, bits []uint32) {
	at := len(l.kept)
	l.kept = append(l.kept, bits)
	if l.want == nil {
		return
	}
	for i, want := range l.want[at] {
		if bits[i] != want {
			l.fault("%s: element %d is %#x, want %#x as in plain Go", title, i, bits[i], want)
			return
		}
	}
}

// keepNumbers records a buffer of float32. All NaNs count as equal.
func (l *lab) keepNumbers(title string, b kernels.Buffer) {
	bits := make([]uint32, b.N)
	for i, x := range l.read(b) {
		bits[i] = math.Float32bits(x)
		if x != x {
			bits[i] = math.Float32bits(unwritten)
		}
	}
	l.keep(title, bits)
}

// keepMatrix records codes and scales, but not the padding between them.
func (l *lab) keepMatrix(title string, q kernels.Quantized) {
	data := make([]uint8, q.Data.N)
	l.must("ReadUint8", l.d.ReadUint8(data, q.Data))
	bits := make([]uint32, len(data))
	for i, b := range data {
		bits[i] = uint32(b)
	}
	codes := q.Rows * q.Cols
	if q.Encoding.Format == kernels.E2M1 {
		codes = q.Rows * ((q.Cols + 1) / 2)
	}
	clear(bits[codes : (codes+3)/4*4])
	l.keep(title, bits)
}

// keepTally records a slab of tallies. All NaNs among the greatest magnitudes count as equal.
func (l *lab) keepTally(title string, b kernels.Buffer) {
	words := make([]int32, b.N)
	l.must("ReadInt32", l.d.ReadInt32(words, b))
	bits := make([]uint32, len(words))
	for i, w := range words {
		bits[i] = uint32(w)
		if i%kernels.TallyWords == 0 && w > 0x7f800000 {
			bits[i] = math.Float32bits(unwritten)
		}
	}
	l.keep(title, bits)
}

// keepDecoded records a matrix decoded in both orientations.
func (l *lab) keepDecoded(title string, q kernels.Quantized) {
	for _, transposed := range []bool{false, true} {
		dst := l.result("dst", q.Rows*q.Cols)
		l.do(title, func() error { return l.d.Dequantize(dst, q, transposed) }, dst)
		l.keepNumbers(title+", decoded", dst)
	}
}

// ranging draws numbers whose magnitudes differ from row to row and from block to block, with
// zeros, and if wild is set with non-finite numbers.
func (l *lab) ranging(rows, cols int, wild bool) []float32 {
	x := l.normal(rows*cols, 1)
	for i := range x {
		x[i] *= float32(math.Exp2(float64((i/cols*7+i%cols/16*5)%60 - 30)))
	}
	odd := []float32{0, float32(math.Copysign(0, -1)), 1e-42, -3e38}
	if wild {
		odd = append(odd, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()))
	}
	for i, v := range odd {
		if len(x) > 20 {
			x[(i*len(x)/len(odd)+l.rng.IntN(5))%len(x)] = v
		}
	}
	return x
}

// edges are numbers at which the rounding changes: the values of the formats and the midpoints
// between two of them, the float32 next to these on each side, and the limits of float32.
var edges = func() []float32 {
	inf := float32(math.Inf(1))
	all := []float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, 0x1p-149, -0x1p-126, inf, -inf, float32(math.NaN())}
	for f := kernels.E4M3; f <= kernels.E2M1; f++ {
		for code := byte(0); f.Decode(code) < f.Max(); code++ {
			below, above := f.Decode(code), f.Decode(code+1)
			for _, x := range []float32{above, (below + above) / 2} {
				bits := math.Float32bits(x)
				for b := bits - 1; b <= bits+1; b++ {
					all = append(all, math.Float32frombits(b), -math.Float32frombits(b))
				}
			}
		}
	}
	return all
}()

// atEdges draws from edges. Unless wild is set, 448 replaces NaN and the numbers of greater magnitude.
func (l *lab) atEdges(n int, wild bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = edges[l.rng.IntN(len(edges))]
		if !wild && !(math.Abs(float64(x[i])) <= 448) {
			x[i] = 448
		}
	}
	return x
}
