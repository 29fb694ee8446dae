package float8

import "math"

// Sizes of blocks.
const (
	BlockMX   = 32  // elements that share a scale in MXFP8
	BlockRow  = 128 // elements of a row of activations or gradients that share a scale
	BlockTile = 128 // rows and columns of a tile of weights that share a scale
	BlockNV   = 16  // elements that share a scale in NVFP4
)

// inBlocks encodes or decodes n elements in blocks, the last of which may be shorter. It passes whole blocks to
// quick, at most a piece at a time, and each block that quick cannot do to single. Portable uses only single.
func (s Set) inBlocks(n, block int, quick func(at, blocks int) (done int), single func(at, end int)) {
	for at := 0; at < n; {
		if whole := min(piece, n-at) / block; whole > 0 && s != Portable {
			done := quick(at, whole)
			if at += done * block; done == whole {
				continue
			}
		}
		end := min(at+block, n)
		single(at, end)
		at = end
	}
}

// encodeMX encodes blocks of 32 elements, each with a scale. If a block contains an infinity or a
// NaN, its scale becomes NaN and all of its elements become f.NaN.
func (s Set) encodeMX(dst, scales []byte, src []float32, random []uint32, f *Format, up bool) (t Tally) {
	s.inBlocks(len(src), BlockMX, func(at, blocks int) int {
		met, done := encodeBlocksMX(dst[at:], scales[at/BlockMX:], src[at:], drawn(random, at, len(src)), blocks, f, up)
		t.Merge(met)
		return done
	}, func(at, end int) {
		t.Merge(s.encodeBlockMX(dst[at:end], &scales[at/BlockMX], src[at:end], drawn(random, at, end), f, up))
	})
	return t
}

// encodeBlockMX encodes one block.
func (s Set) encodeBlockMX(dst []byte, code *byte, src []float32, random []uint32, f *Format, up bool) (t Tally) {
	amax := s.Amax(src)
	scale := f.ScaleMX(amax, up)
	*code = byte(scale)
	if scale == NaNScale {
		t = encodeEach(dst, src, nil, f, 1)
		for i := range dst {
			dst[i] = f.NaN
		}
		return t
	}
	t.scale(scale.Reciprocal(), math.Float32frombits(amax))
	t.Merge(s.Encode(dst, src, random, f, scale.Reciprocal()))
	return t
}

// decodeMX reverses encodeMX.
func (s Set) decodeMX(dst []float32, src, scales []byte, f *Format) {
	s.inBlocks(len(src), BlockMX, func(at, blocks int) int {
		return s.decodeBlocksMX(dst[at:], src[at:], scales[at/BlockMX:], blocks, f)
	}, func(at, end int) {
		s.Decode(dst[at:end], src[at:end], f, E8M0(scales[at/BlockMX]).Float32())
	})
}

// encodeRows encodes blocks of 128 elements, each with a scale. It stores the inverses of the
// scales, by which decoding multiplies.
func (s Set) encodeRows(dst []byte, inverses []float32, src []float32, random []uint32, f *Format, epsilon float32, powerOf2 bool) (t Tally) {
	s.inBlocks(len(src), BlockRow, func(at, blocks int) int {
		met, done := encodeBlocksRows(dst[at:], inverses[at/BlockRow:], src[at:], drawn(random, at, len(src)), blocks, f, epsilon, powerOf2)
		t.Merge(met)
		return done
	}, func(at, end int) {
		amax := math.Float32frombits(s.Amax(src[at:end]))
		scale := ScaleOf(amax, f.Greatest(), epsilon, powerOf2)
		inverses[at/BlockRow] = 1 / scale
		t.scale(scale, max(amax, epsilon))
		t.Merge(s.Encode(dst[at:end], src[at:end], drawn(random, at, end), f, scale))
	})
	return t
}

// decodeRows reverses encodeRows.
func (s Set) decodeRows(dst []float32, src []byte, inverses []float32, f *Format) {
	for b := range blocksOf(len(src), BlockRow) {
		from, end := b*BlockRow, min((b+1)*BlockRow, len(src))
		s.Decode(dst[from:end], src[from:end], f, inverses[b])
	}
}
