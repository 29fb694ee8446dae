package float8

import "math"

// Sizes of blocks.
const (
	BlockMX   = 32  // elements that share a scale in MXFP8
	BlockRow  = 128 // along rows of activations and gradients
	BlockTile = 128 // rows and columns of a tile of weights
	BlockNV   = 16  // in NVFP4
)

// encodeMX encodes blocks of 32 elements, each with a scale. The last block may be shorter. A
// block that contains an infinity or a NaN has the scale NaN and NaN for every element.
func (s Set) encodeMX(dst, scales []byte, src []float32, random []uint32, f *Format, up bool) (t Tally) {
	for at := 0; at < len(src); {
		if whole := min(piece, len(src)-at) / BlockMX; whole > 0 && s != Portable {
			met, done := encodeBlocksMX(dst[at:], scales[at/BlockMX:], src[at:], randomFrom(random, at), whole, f, up)
			t.Merge(met)
			if at += done * BlockMX; done == whole {
				continue
			}
		}
		end := min(at+BlockMX, len(src))
		t.Merge(s.encodeBlockMX(dst[at:end], &scales[at/BlockMX], src[at:end], randomPart(random, at, end), f, up))
		at = end
	}
	return t
}

// encodeBlockMX encodes one block.
func (s Set) encodeBlockMX(dst []byte, code *byte, src []float32, random []uint32, f *Format, up bool) (t Tally) {
	amax := s.Amax(src)
	scale := f.ScaleMX(amax, up)
	*code = byte(scale)
	if scale == NaNScale {
		t = encodeEach(dst, src, f, 1, Saturate)
		for i := range dst {
			dst[i] = f.NaN
		}
		return t
	}
	t.scale(scale.Reciprocal(), math.Float32frombits(amax))
	t.Merge(s.encode(dst, src, random, f, scale.Reciprocal()))
	return t
}

// decodeMX reverses encodeMX.
func (s Set) decodeMX(dst []float32, src, scales []byte, f *Format) {
	for at := 0; at < len(src); {
		if whole := (len(src) - at) / BlockMX; whole > 0 && s != Portable {
			done := s.decodeBlocksMX(dst[at:], src[at:], scales[at/BlockMX:], whole, f)
			if at += done * BlockMX; done == whole {
				continue
			}
		}
		end := min(at+BlockMX, len(src))
		s.Decode(dst[at:end], src[at:end], f, E8M0(scales[at/BlockMX]).Float32())
		at = end
	}
}

// encodeRows encodes blocks of 128 elements, each with a scale. The last block may be shorter.
// Decoding multiplies by the inverses.
func (s Set) encodeRows(dst []byte, inverses []float32, src []float32, random []uint32, f *Format, epsilon float32, powerOf2 bool) (t Tally) {
	most := f.Greatest()
	for at := 0; at < len(src); {
		if whole := min(piece, len(src)-at) / BlockRow; whole > 0 && s != Portable {
			met, done := encodeBlocksRows(dst[at:], inverses[at/BlockRow:], src[at:], randomFrom(random, at), whole, f, epsilon, powerOf2)
			t.Merge(met)
			if at += done * BlockRow; done == whole {
				continue
			}
		}
		end := min(at+BlockRow, len(src))
		amax := math.Float32frombits(s.Amax(src[at:end]))
		scale := ScaleOf(amax, most, epsilon, powerOf2)
		inverses[at/BlockRow] = 1 / scale
		t.scale(scale, max(amax, epsilon))
		t.Merge(s.encode(dst[at:end], src[at:end], randomPart(random, at, end), f, scale))
		at = end
	}
	return t
}

// decodeRows reverses encodeRows.
func (s Set) decodeRows(dst []float32, src []byte, inverses []float32, f *Format) {
	for b := range blocksOf(len(src), BlockRow) {
		from, end := b*BlockRow, min((b+1)*BlockRow, len(src))
		s.Decode(dst[from:end], src[from:end], f, inverses[b])
	}
}

// randomFrom returns the random numbers from index at, or nil if there are none.
func randomFrom(random []uint32, at int) []uint32 {
	if random == nil {
		return nil
	}
	return random[at:]
}

// randomPart returns a range of the random numbers, or nil if there are none.
func randomPart(random []uint32, from, end int) []uint32 {
	if random == nil {
		return nil
	}
	return random[from:end]
}
