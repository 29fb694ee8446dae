//go:build (amd64 || arm64) && !purego

package float8

import "math"

// encodeArgs holds the arguments and results of the assembly's encoders. The assembly documents
// its layout. Scales are multiplied by a power of two that depends on the format. It is chosen so
// that the exponents of the smallest normal number and of ulp end in zeros and thus do not appear
// in a code.
type encodeArgs struct {
	scale  float32
	most   float32 // the greatest value
	normal float32 // the smallest normal number
	ulp    float32 // 2^shift
	shift  uint64  // number of mantissa bits that are dropped

	amax  uint32 // greatest magnitude of the source, before scaling
	zeros uint32 // number of codes that are zero

	// The remaining fields are for columns of MX32 blocks; see scaleColumns512.
	up, one    uint32
	top, least uint32
}

// adjust returns the power of two by which the assembly multiplies scales and limits.
func (f *Format) adjust() float32 {
	return adjusts[f.Mantissa]
}

// adjusts holds the powers of two that adjust returns, by the number of mantissa bits.
var adjusts = [...]float32{1: 0x1p-21, 2: 0x1p-6, 3: 0x1p-13}

func (f *Format) encodeArgs(scale float32) encodeArgs {
	adjust := f.adjust()
	return encodeArgs{
		scale: scale * adjust, most: f.Greatest() * adjust, normal: f.LeastNormal() * adjust,
		ulp: float32(int(1) << (mantissaBits - f.Mantissa)), shift: uint64(mantissaBits - f.Mantissa),
	}
}

// encodeArgsMX returns the arguments for MX32 blocks, with scales multiplied by unit.
func (f *Format) encodeArgsMX(up bool, unit float32) encodeArgs {
	const top = 200
	r := f.encodeArgs(1)
	greatest := math.Float32bits(f.Greatest())
	r.up = exponentBias<<mantissaBits - greatest&infinity
	if up {
		r.up = exponentBias<<mantissaBits - greatest + 1<<mantissaBits - 1
	}
	r.one = exponentBias + math.Float32bits(unit)>>mantissaBits
	r.top, r.least = top, math.MaxUint32
	return r
}

// scalesMX adds two scales to the tally: those of the MX32 blocks with the least nonzero amax,
// which is passed minus 1, and with the greatest.
func (t *Tally) scalesMX(f *Format, least, most uint32, up bool) {
	if most > 0 {
		t.scale(f.ScaleMX(least+1, up).Reciprocal(), 1)
		t.scale(f.ScaleMX(most, up).Reciprocal(), 1)
	}
}

// exact reports whether the assembly can multiply by a scale: the format's power of two must not
// make a relevant product subnormal.
func exact(scale float32) bool { return scale >= 0x1p-95 && scale <= math.MaxFloat32 }

// encodePiece encodes whole groups. ok is false if an element is not finite.
func encodePiece(dst []byte, src []float32, random []uint32, f *Format, scale float32) (t Tally, ok bool) {
	var zeros uint32
	if random != nil {
		t.Amax, zeros = encodeRandom256(&dst[0], &src[0], &random[0], len(src), &scale, 0, &roundTables[f.Mantissa])
	} else {
		r := f.encodeArgs(scale)
		encode256(&dst[0], &src[0], len(src), &r)
		t.Amax, zeros = r.amax, r.zeros
	}
	if t.Amax >= infinity {
		return Tally{}, false
	}
	if zeros > 0 {
		t.Underflowed = int(zeros) - zeros256(&src[0], len(src))
	}
	if f.overflows(t.Greatest() * scale) {
		t.Saturated = f.countAbove(src, scale)
	}
	return t, true
}

// encodeArgsNV holds the arguments with which the assembly encodes NV16 blocks.
type encodeArgsNV struct {
	sixth, inverse        float32
	most, normal, ulp     float32 // of E4M3
	down, up              float32
	greatest, adjust, cut float32
}

// encodeArgsOfNV returns the arguments for NV16 blocks, with scales multiplied by unit.
func encodeArgsOfNV(tensor, sixth, unit float32) encodeArgsNV {
	e4m3 := E4M3.encodeArgs(1)
	return encodeArgsNV{
		sixth: sixth, inverse: 1 / tensor, most: e4m3.most, normal: e4m3.normal, ulp: e4m3.ulp,
		down: E4M3.adjust(), up: 1 / E4M3.adjust(), greatest: math.MaxFloat32, adjust: unit, cut: 7 * unit,
	}
}

func amax(src []float32) uint32 { return amax256(&src[0], len(src)) }

//go:noescape
func encode256(dst *byte, src *float32, n int, r *encodeArgs)

//go:noescape
func zeros256(src *float32, n int) int

//go:noescape
func amax256(src *float32, n int) uint32

//go:noescape
func transpose8(dst *float32, dstStride int, src *float32, srcStride, blocks int)
