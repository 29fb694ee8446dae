package ptx

import "math"

// bfloat16 rounds a register in single precision to nearest, ties to even; hardware has one NaN.
func bfloat16(x uint64) uint64 {
	if f := f32(x); f != f {
		return 0x7fff
	}
	return (x + 0x7fff + x>>16&1) >> 16
}

// multiply is d = a·b + c of a warp, a 16×16 by rows and b 16×8 by columns of bfloat16, c and d 16×8 of
// float32. Thread 4g+t holds of a the pairs of columns 2t and 2t+8 in rows g and g+8, of b the pairs of
// rows 2t and 2t+8 in column g, of c and d columns 2t and 2t+1 in rows g and g+8 (PTX ISA,
// "Matrix Fragments for mma.m16n8k16 with floating point type"). Products are exact. PTX does not
// say in what order they are added, nor how sums are rounded: here c comes first, then k ascends, in
// float64, and the whole is rounded once. Hardware may differ in the last bits.
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
