//go:build amd64 && !purego

package float8

import "math"

// columns encodes n rows of sixteen columns of x, which has stride columns, k of which count, into rows of m
// from one on: from element at, a multiple of strip, on, with the scale of the tensor or
// the tile. n is a multiple of 16, of 32 in MX32. It reports false, and may have written
// anything, where the assembly cannot do it.
func (s Set) columns(dst []byte, dstStride int, scales *columnScales, x []float32, stride, n, k int, m *Matrix, rule *Rule, scale float32) (t Tally, ok bool) {
	if s != AVX512 {
		return t, false
	}
	f := m.Format
	switch m.Scaling {
	case MX32:
		return columnsMX(dst, dstStride, scales, x, stride, n, f, !rule.Down)
	case Rows128:
		return columnsRows(dst, dstStride, scales, x, stride, n, k, f, rule)
	}
	r := f.encodeArgs(scale)
	var each [lanes]float32
	for l := range each {
		each[l] = r.scale
	}
	if !exact(scale) {
		return t, false
	}
	ok = encodeColumns(dst, dstStride, x, stride, n, &each, &r, &t)
	if ok && f.above(math.Float32frombits(t.Amax)*scale) {
		for i := range n {
			t.Saturated += f.countAbove(x[i*stride:][:lanes], scale)
		}
	}
	return t, ok
}

// columnsMX is columns for MX32.
func columnsMX(dst []byte, dstStride int, scales *columnScales, x []float32, stride, n int, f *Format, up bool) (t Tally, ok bool) {
	r := f.encodeArgsMX(up)
	var each [lanes]float32
	var codes [lanes]byte
	for at := 0; at < n; at += BlockMX {
		src := x[at*stride:]
		if !scaleColumns512(&src[0], 4*stride, &codes[0], &each[0], &r) ||
			!encodeColumns(dst[at:], dstStride, src, stride, BlockMX, &each, &r, &t) {
			return t, false
		}
		for l, code := range codes {
			scales.codes[l][at/BlockMX] = code
		}
		if !up {
			for i := range BlockMX {
				for l, v := range src[i*stride:][:lanes] {
					if f.above(v * E8M0(codes[l]).Reciprocal()) {
						t.Saturated++
					}
				}
			}
		}
	}
	t.scalesMX(f, r.least, t.Amax, up)
	return t, true
}

// columnsRows is columns for Rows128.
func columnsRows(dst []byte, dstStride int, scales *columnScales, x []float32, stride, n, k int, f *Format, rule *Rule) (t Tally, ok bool) {
	r := f.encodeArgs(1)
	var each [lanes]float32
	var amax [lanes]uint32
	amaxColumns512(&x[0], 4*stride, n, &amax[0])
	most, adjust := f.Greatest(), f.adjust()
	for l, a := range amax[:k] {
		a := math.Float32frombits(a)
		scale := ScaleOf(a, most, rule.Epsilon, !rule.AnyScale)
		if !exact(scale) {
			return t, false
		}
		each[l] = scale * adjust
		scales.inverses[l] = 1 / scale
		t.scale(scale, max(a, rule.Epsilon))
	}
	ok = encodeColumns(dst, dstStride, x, stride, n, &each, &r, &t)
	return t, ok
}

// encodeColumns encodes sixteen columns of n rows, each with a scale, and enters what it
// met but for what saturated. It reports false where something is not finite.
func encodeColumns(dst []byte, dstStride int, x []float32, stride, n int, each *[lanes]float32, r *encodeArgs, t *Tally) bool {
	encodeColumns512(&dst[0], dstStride, &x[0], 4*stride, n/lanes, &each[0], r)
	if r.amax >= infinity {
		return false
	}
	t.Amax = max(t.Amax, r.amax)
	if r.zeros > 0 {
		t.Underflowed += int(r.zeros) - zeroColumns512(&x[0], 4*stride, n)
	}
	return true
}

//go:noescape
func encodeColumns512(dst *byte, dstStride int, src *float32, srcStride, groups int, scales *float32, r *encodeArgs)

//go:noescape
func amaxColumns512(src *float32, stride, rows int, amax *uint32)

//go:noescape
func zeroColumns512(src *float32, stride, rows int) int

//go:noescape
func scaleColumns512(src *float32, stride int, codes *byte, scales *float32, r *encodeArgs) bool
