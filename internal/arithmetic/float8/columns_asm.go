//go:build (amd64 || arm64) && !purego

package float8

import (
	"math"
	"slices"
)

// columns encodes a strip in assembly. It returns false if the assembly cannot encode the strip;
// the output is then undefined.
func (s Set) columns(c *columnStrip, scales *columnScales, m *Matrix, rule *Rule, scale float32) bool {
	switch m.Scaling {
	case MX32:
		return s.columnsMX(c, scales, !rule.Down)
	case Rows128:
		return s.columnsRows(c, scales, rule)
	case NV16:
		return s.columnsNV(c, scales, scale)
	}
	if c.random == nil && !exact(scale) || math.Float32bits(scale) >= infinity {
		return false
	}
	var each [lanes]float32
	for l := range each {
		each[l] = scale * c.format.unit(c.random)
	}
	if !s.encodeColumns(c, 0, c.rows, &each) {
		return false
	}
	if c.format.overflows(c.met.Greatest() * scale) {
		for i := range c.rows {
			c.met.Saturated += c.format.countAbove(c.x[i*c.stride:][:lanes], scale)
		}
	}
	return true
}

// columnsMX is columns for MX32.
func (s Set) columnsMX(c *columnStrip, scales *columnScales, up bool) bool {
	f := c.format
	r := f.encodeArgsMX(up, f.unit(c.random))
	var each [lanes]float32
	var codes [lanes]byte
	for at := 0; at < c.rows; at += BlockMX {
		if !s.scaleColumns(c, at, &codes, &each, &r) || !s.encodeColumns(c, at, BlockMX, &each) {
			return false
		}
		for l, code := range codes {
			scales.codes[l][at/BlockMX] = code
		}
		if !up {
			for i := range BlockMX {
				for l, v := range c.x[(at+i)*c.stride:][:lanes] {
					if f.overflows(v * E8M0(codes[l]).Reciprocal()) {
						c.met.Saturated++
					}
				}
			}
		}
	}
	c.met.scalesMX(f, r.least, c.met.Amax, up)
	return true
}

// scaleColumns computes the MX32 scales of a strip's columns for the block that begins at row at.
// It returns false if the code of a scale is above r.top.
func (s Set) scaleColumns(c *columnStrip, at int, codes *[lanes]byte, each *[lanes]float32, r *encodeArgs) bool {
	if s == AVX512 {
		return scaleColumns512(&c.x[at*c.stride], 4*c.stride, &codes[0], &each[0], r)
	}
	var amax [lanes]uint32
	s.amaxColumns(c, at, BlockMX, &amax)
	for l, a := range amax {
		code := uint32(max(0, int32(a+r.up)>>mantissaBits))
		if code > r.top {
			return false
		}
		codes[l], each[l] = byte(code), math.Float32frombits((r.one-code)<<mantissaBits)
		r.least = min(r.least, a-1)
	}
	return true
}

// columnsRows is columns for Rows128.
func (s Set) columnsRows(c *columnStrip, scales *columnScales, rule *Rule) bool {
	var each [lanes]float32
	var amax [lanes]uint32
	s.amaxColumns(c, 0, c.rows, &amax)
	most, unit := c.format.Greatest(), c.format.unit(c.random)
	for l, a := range amax[:c.cols] {
		a := math.Float32frombits(a)
		scale := ScaleOf(a, most, rule.Epsilon, !rule.AnyScale)
		if c.random == nil && !exact(scale) {
			return false
		}
		each[l] = scale * unit
		scales.inverses[l] = 1 / scale
		c.met.scale(scale, max(a, rule.Epsilon))
	}
	return s.encodeColumns(c, 0, c.rows, &each)
}

// columnsNV is columns for NV16: first the scales of all blocks, then their codes.
func (s Set) columnsNV(c *columnStrip, scales *columnScales, tensor float32) bool {
	const most = strip / BlockNV * lanes
	var amax [most]uint32
	var each [most]float32
	var codes [most]byte
	blocks := c.rows / BlockNV
	for b := range blocks {
		s.amaxColumns(c, b*BlockNV, BlockNV, (*[lanes]uint32)(amax[b*lanes:]))
	}
	if slices.Max(amax[:]) >= infinity || !(tensor >= minTensor) {
		return false
	}
	unit := E2M1.unit(c.random)
	above := scalesNV(codes[:blocks*lanes], each[:], amax[:], tensor, float32(tensor*float32(1.0/6)), unit)
	var bytes [lanes * strip]byte
	whole := *c
	whole.dst, whole.dstStride = bytes[:], strip
	for b := range blocks {
		s.encodeColumns(&whole, b*BlockNV, BlockNV, (*[lanes]float32)(each[b*lanes:]))
		for l, code := range codes[b*lanes:][:lanes] {
			scales.codes[l][b] = code
		}
	}
	if above {
		for i := range c.rows {
			for l, v := range c.x[i*c.stride:][:lanes] {
				if E2M1.overflows(v * (each[i/BlockNV*lanes+l] / unit)) {
					whole.met.Saturated++
				}
			}
		}
	}
	c.met = whole.met
	var pairs [lanes * strip / 2]byte
	nibbles256(&pairs[0], &bytes[0], len(bytes))
	for l := range lanes {
		copy(c.dst[l*c.dstStride:][:c.rows/2], pairs[l*strip/2:])
	}
	return true
}

// encodeColumns encodes rows of the sixteen columns of a strip, with one scale for each column,
// and adds everything but the saturated elements to the tally. It returns false if an element is
// not finite.
func (s Set) encodeColumns(c *columnStrip, at, rows int, each *[lanes]float32) bool {
	var amax, zeros uint32
	groups, stride := rows/lanes, 4*c.stride
	r := c.format.encodeArgs(1)
	step := 8 // columns per call of the assembly
	if s == AVX512 && c.random == nil {
		step = lanes
	}
	for l := 0; l < lanes; l += step {
		dst, src := &c.dst[l*c.dstStride+at], &c.x[at*c.stride+l]
		var a, z uint32
		switch {
		case c.random == nil && step == lanes:
			encodeColumns512(dst, c.dstStride, src, stride, groups, &each[l], &r)
			a, z = r.amax, r.zeros
		case c.random == nil:
			encodeColumns256(dst, c.dstStride, src, stride, groups, &each[l], &r)
			a, z = r.amax, r.zeros
		default:
			a, z = encodeRandomColumns256(dst, c.dstStride, src, stride, &c.random[at*lanes+l], groups, &each[l], &roundTables[c.format.Mantissa])
		}
		amax, zeros = max(amax, a), zeros+z
	}
	if amax >= infinity {
		return false
	}
	c.met.Amax = max(c.met.Amax, amax)
	if zeros > 0 {
		c.met.Underflowed += int(zeros) - zeroColumns(c, at, rows)
	}
	return true
}

// amaxColumns finds the greatest magnitude of each column over an even number of rows.
func (s Set) amaxColumns(c *columnStrip, at, rows int, amax *[lanes]uint32) {
	src := c.x[at*c.stride:]
	if s == AVX512 {
		amaxColumns512(&src[0], 4*c.stride, rows, &amax[0])
		return
	}
	amaxColumns256(&src[0], 4*c.stride, rows, &amax[0])
	amaxColumns256(&src[8], 4*c.stride, rows, &amax[8])
}

// zeroColumns counts the zeros in a range of rows.
func zeroColumns(c *columnStrip, at, rows int) int {
	src := c.x[at*c.stride:]
	return zeroColumns256(&src[0], 4*c.stride, rows) + zeroColumns256(&src[8], 4*c.stride, rows)
}

//go:noescape
func encodeColumns512(dst *byte, dstStride int, src *float32, srcStride, groups int, scales *float32, r *encodeArgs)

//go:noescape
func encodeColumns256(dst *byte, dstStride int, src *float32, srcStride, groups int, scales *float32, r *encodeArgs)

//go:noescape
func amaxColumns512(src *float32, stride, rows int, amax *uint32)

//go:noescape
func amaxColumns256(src *float32, stride, rows int, amax *uint32)

//go:noescape
func zeroColumns256(src *float32, stride, rows int) int

//go:noescape
func scaleColumns512(src *float32, stride int, codes *byte, scales *float32, r *encodeArgs) bool
