package ptx

import "math"

// bfloat16 rounds a single-precision register to nearest, ties to even; hardware has only one
// NaN.
func bfloat16(x uint64) uint64 {
	if f := f32(x); f != f {
		return 0x7fff
	}
	return (x + 0x7fff + x>>16&1) >> 16
}

// multiply is d = a·b + c for a warp. a is 16×16 by rows and b 16×8 by columns, of bfloat16;
// c and d are 16×8, of float32. Thread 4g+t holds the pairs of columns 2t and 2t+8 of a in
// rows g and g+8, the pairs of rows 2t and 2t+8 of b in column g, and columns 2t and 2t+1 of c
// and d in rows g and g+8 (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type"). Products are exact. PTX specifies neither the order in which they are added nor the
// rounding of the sums: this implementation starts with c, adds in ascending order of k in
// float64, and rounds once. Hardware may differ in the last bits.
func (w *warp) multiply(in *instruction) {
	var a [16][16]float64
	var b [8][16]float64
	half := func(register int32, lane, i int) float64 {
		return float64(math.Float32frombits(uint32(w.registers[register][lane]>>(16*i)) << 16))
	}
	for lane := range warpSize {
		g, t := lane/4, lane%4
		for i := range 2 {
			for e := range 4 {
				a[g+e%2*8][2*t+i+e/2*8] = half(in.tiles[e], lane, i)
			}
			for e := range 2 {
				b[g][2*t+i+e*8] = half(in.tiles[4+e], lane, i)
			}
		}
	}
	for lane := range warpSize {
		g, t := lane/4, lane%4
		var sums [4]float64
		for e := range sums {
			sums[e] = float64(f32(w.registers[in.tiles[6+e]][lane]))
			row, col := &a[g+e/2*8], &b[2*t+e%2]
			for k, x := range row {
				sums[e] += float64(x * col[k])
			}
		}
		for e, sum := range sums {
			w.registers[in.dst[e]][lane] = from32(float32(sum))
		}
	}
}
