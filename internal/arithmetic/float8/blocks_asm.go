//go:build (amd64 || arm64) && !purego

package float8

import (
	"math"
	"slices"
)

// The assembly encodes a piece of whole blocks in three passes, all in the first-level cache.
// They compute the greatest magnitude of every 16 elements, the scales, and the codes.

// pieceScales holds, for every 16 elements of a piece, the greatest magnitude and the factor,
// which is the scale times unit.
type pieceScales struct {
	amax [piece / BlockNV]uint32
	each [piece / BlockNV]float32
}

// unit returns the factor by which the assembly expects scales to be multiplied: see
// encodeArgs. For stochastic rounding it is 1.
func (f *Format) unit(random []uint32) float32 {
	if random != nil {
		return 1
	}
	return f.adjust()
}

// find sets amax for the whole groups of src, which is at most a piece long. It returns the
// number of elements in the groups before the first one with an infinity or a NaN.
func (p *pieceScales) find(src []float32) int {
	n := len(src) &^ (group - 1)
	if n > 0 && amaxBlocks256(&p.amax[0], &src[0], n) >= infinity {
		n = BlockNV * slices.IndexFunc(p.amax[:], func(a uint32) bool { return a >= infinity }) &^ (group - 1)
	}
	return n
}

// encode encodes src, which consists of whole groups.
func (p *pieceScales) encode(dst []byte, src []float32, random []uint32, f *Format) (t Tally) {
	var zeros uint32
	if random != nil {
		_, zeros = encodeRandom256(&dst[0], &src[0], &random[0], len(src), &p.each[0], 4, &roundTables[f.Mantissa])
	} else {
		r := f.encodeArgs(1)
		encodeScaled256(&dst[0], &src[0], len(src), &p.each[0], &r)
		zeros = r.zeros
	}
	t.Amax = slices.Max(p.amax[:len(src)/BlockNV])
	if zeros > 0 {
		t.Underflowed = int(zeros) - zeros256(&src[0], len(src))
	}
	return t
}

// encodeBlocksMX encodes as many whole blocks as it can, and returns their number.
func encodeBlocksMX(dst, scales []byte, src []float32, random []uint32, blocks int, f *Format, up bool) (t Tally, done int) {
	const each = BlockMX / BlockNV
	var p pieceScales
	least, unit := uint32(math.MaxUint32), f.unit(random)
	for whole := p.find(src[:blocks*BlockMX]) / BlockMX; done < whole; done++ {
		amax := slices.Max(p.amax[done*each:][:each])
		code := f.ScaleMX(amax, up)
		scale := code.Reciprocal()
		if random == nil && !exact(scale) {
			break
		}
		least = min(least, amax-1)
		scales[done] = byte(code)
		for i := range each {
			p.each[done*each+i] = scale * unit
		}
	}
	if done == 0 {
		return t, 0
	}
	src = src[:done*BlockMX]
	t = p.encode(dst, src, random, f)
	t.scalesMX(f, least, t.Amax, up)
	if !up {
		for b, scale := range scales[:done] {
			t.Saturated += f.countAbove(src[b*BlockMX:][:BlockMX], E8M0(scale).Reciprocal())
		}
	}
	return t, done
}

// encodeBlocksRows encodes as many whole blocks as it can, and returns their number.
func encodeBlocksRows(dst []byte, inverses, src []float32, random []uint32, blocks int, f *Format, epsilon float32, powerOf2 bool) (t Tally, done int) {
	const each = BlockRow / BlockNV
	var p pieceScales
	most, unit := f.Greatest(), f.unit(random)
	for whole := p.find(src[:blocks*BlockRow]) / BlockRow; done < whole; done++ {
		amax := math.Float32frombits(slices.Max(p.amax[done*each:][:each]))
		scale := ScaleOf(amax, most, epsilon, powerOf2)
		if random == nil && !exact(scale) {
			break
		}
		inverses[done] = 1 / scale
		t.scale(scale, max(amax, epsilon))
		for i := range each {
			p.each[done*each+i] = scale * unit
		}
	}
	if done > 0 {
		t.Merge(p.encode(dst, src[:done*BlockRow], random, f))
	}
	return t, done
}

// encodeBlocksNV encodes as many whole blocks as it can, and returns their number.
func encodeBlocksNV(dst, scales []byte, src []float32, random []uint32, blocks int, tensor, sixth float32) (t Tally, done int) {
	var p pieceScales
	n := p.find(src[:blocks*BlockNV])
	if n == 0 || !(tensor >= minTensor) {
		return t, 0
	}
	done = n / BlockNV
	var codes [piece]byte
	unit := E2M1.unit(random)
	above := scalesNV(codes[:done], p.each[:], p.amax[:], tensor, sixth, unit)
	copy(scales[:done], codes[:])
	t = p.encode(codes[:], src[:n], random, &E2M1)
	nibbles256(&dst[0], &codes[0], n)
	if above {
		for b := range done {
			t.Saturated += E2M1.countAbove(src[b*BlockNV:][:BlockNV], p.each[b]/unit)
		}
	}
	return t, done
}

// minTensor is the smallest tensor scale for which the assembly computes the scales of
// blocks.
const minTensor = 0x1p-60

// scalesNV computes the scales of blocks from their greatest magnitudes, which are finite. It
// computes len(codes) scales and may write up to the next multiple of 8, for which all three
// slices have room. It reports whether an element saturates.
func scalesNV(codes []byte, each []float32, amax []uint32, tensor, sixth, unit float32) bool {
	r := encodeArgsOfNV(tensor, sixth, unit)
	n := blocksOf(len(codes), 8) * 8
	clear(amax[len(codes):n])
	return scalesNV256(&codes[0], &each[0], &amax[0], n, &r)
}

//go:noescape
func encodeScaled256(dst *byte, src *float32, n int, scales *float32, r *encodeArgs)

//go:noescape
func amaxBlocks256(amax *uint32, src *float32, n int) uint32

//go:noescape
func scalesNV256(codes *byte, scales *float32, amax *uint32, n int, r *encodeArgsNV) bool

//go:noescape
func nibbles256(dst, src *byte, n int)
