package float8

import (
	"math"
	"unsafe"
)

// Blocks of a matrix. Rows lie one after the other and are whole numbers of blocks, so
// a slice of blocks is a slice of elements. What is scaled down the columns is
// transposed first: it has other blocks, and other numbers.

// Sizes of blocks.
const (
	BlockMX   = 32  // elements that share a scale in MXFP8
	BlockRow  = 128 // in rows of activations and gradients
	BlockTile = 128 // rows and columns of a tile of weights
	BlockNV   = 16  // in NVFP4
)

// EncodeMX encodes blocks of 32 elements, the last of what is left, with a scale each. A
// block in which something is not finite has the scale NaN, and NaN for every element.
func (s Set) EncodeMX(dst []byte, scales []E8M0, src []float32, f *Format, up bool) Tally {
	return s.encodeMX(dst, raw(scales), src, nil, f, up)
}

// encodeMX is EncodeMX, stochastic where there are random numbers.
func (s Set) encodeMX(dst, scales []byte, src []float32, random []uint32, f *Format, up bool) (t Tally) {
	for at := 0; at < len(src); {
		if whole := min(piece, len(src)-at) / BlockMX; whole > 0 && random == nil && s != Portable {
			met, done := s.encodeBlocksMX(dst[at:], scales[at/BlockMX:], src[at:], whole, f, up)
			t.Merge(met)
			if at += done * BlockMX; done == whole {
				continue
			}
		}
		end := min(at+BlockMX, len(src))
		t.Merge(s.encodeBlockMX(dst[at:end], &scales[at/BlockMX], src[at:end], part(random, at, end), f, up))
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

// DecodeMX is the reverse of EncodeMX.
func (s Set) DecodeMX(dst []float32, src []byte, scales []E8M0, f *Format) {
	s.decodeMX(dst, src, raw(scales), f)
}

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

// EncodeRows encodes blocks of 128 elements, the last of what is left, with a scale each.
// Inverses are what decoding multiplies with.
func (s Set) EncodeRows(dst []byte, inverses []float32, src []float32, f *Format, epsilon float32, powerOf2 bool) Tally {
	return s.encodeRows(dst, inverses, src, nil, f, epsilon, powerOf2)
}

// encodeRows is EncodeRows, stochastic where there are random numbers.
func (s Set) encodeRows(dst []byte, inverses []float32, src []float32, random []uint32, f *Format, epsilon float32, powerOf2 bool) (t Tally) {
	most := f.Greatest()
	for at := 0; at < len(src); {
		if whole := min(piece, len(src)-at) / BlockRow; whole > 0 && random == nil && s != Portable {
			met, done := s.encodeBlocksRows(dst[at:], inverses[at/BlockRow:], src[at:], whole, f, epsilon, powerOf2)
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
		t.Merge(s.encode(dst[at:end], src[at:end], part(random, at, end), f, scale))
		at = end
	}
	return t
}

// DecodeRows is the reverse of EncodeRows.
func (s Set) DecodeRows(dst []float32, src []byte, inverses []float32, f *Format) {
	for b := range blocksOf(len(src), BlockRow) {
		from, end := b*BlockRow, min((b+1)*BlockRow, len(src))
		s.Decode(dst[from:end], src[from:end], f, inverses[b])
	}
}

// part returns a part of random numbers, nil where there are none.
func part(random []uint32, from, end int) []uint32 {
	if random == nil {
		return nil
	}
	return random[from:end]
}

// raw returns scales as bytes.
func raw(scales []E8M0) []byte {
	return unsafe.Slice((*byte)(unsafe.SliceData(scales)), len(scales))
}

// EncodeTiles encodes a matrix in tiles of 128 by 128 with a scale each, row of tiles
// after row. At the edges tiles are what is left.
func (s Set) EncodeTiles(dst []byte, inverses []float32, src []float32, rows, cols int, f *Format, epsilon float32, powerOf2 bool) (t Tally) {
	most := f.Greatest()
	n := 0
	for r := 0; r < rows; r += BlockTile {
		for c := 0; c < cols; c += BlockTile {
			wide := min(BlockTile, cols-c)
			var bits uint32
			for i := r; i < min(r+BlockTile, rows); i++ {
				bits = max(bits, s.Amax(src[i*cols+c:][:wide]))
			}
			amax := math.Float32frombits(bits)
			scale := ScaleOf(amax, most, epsilon, powerOf2)
			for i := r; i < min(r+BlockTile, rows); i++ {
				t.Merge(s.Encode(dst[i*cols+c:][:wide], src[i*cols+c:][:wide], f, scale, Saturate))
			}
			inverses[n] = 1 / scale
			t.scale(scale, max(amax, epsilon))
			n++
		}
	}
	return t
}

// DecodeTiles is the reverse of EncodeTiles.
func (s Set) DecodeTiles(dst []float32, src []byte, inverses []float32, rows, cols int, f *Format) {
	across := (cols + BlockTile - 1) / BlockTile
	for i := range rows {
		for c := 0; c < cols; c += BlockTile {
			wide := min(BlockTile, cols-c)
			s.Decode(dst[i*cols+c:][:wide], src[i*cols+c:][:wide], f, inverses[i/BlockTile*across+c/BlockTile])
		}
	}
}
