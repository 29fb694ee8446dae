package float8

import "math"

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

// EncodeMX encodes blocks of 32 elements with a scale each. A block in which something
// is not finite has the scale NaN, and NaN for every element.
func (s Set) EncodeMX(dst []byte, scales []E8M0, src []float32, f *Format, up bool) (t Tally) {
	for b := range len(src) / BlockMX {
		from, to := src[b*BlockMX:][:BlockMX], dst[b*BlockMX:][:BlockMX]
		scale := f.ScaleMX(s.Amax(from), up)
		scales[b] = scale
		if scale == NaNScale {
			t.Merge(encodeEach(to, from, f, 1, Saturate))
			for i := range to {
				to[i] = f.NaN
			}
			continue
		}
		t.Merge(s.Encode(to, from, f, scale.Reciprocal(), Saturate))
	}
	return t
}

// DecodeMX is the reverse of EncodeMX.
func (s Set) DecodeMX(dst []float32, src []byte, scales []E8M0, f *Format) {
	for b, scale := range scales {
		s.Decode(dst[b*BlockMX:][:BlockMX], src[b*BlockMX:][:BlockMX], f, scale.Float32())
	}
}

// EncodeRows encodes blocks of 128 elements with a scale each. Inverses are what
// decoding multiplies with.
func (s Set) EncodeRows(dst []byte, inverses []float32, src []float32, f *Format, epsilon float32, powerOf2 bool) (t Tally) {
	most := f.Greatest()
	for b := range len(src) / BlockRow {
		from := src[b*BlockRow:][:BlockRow]
		scale := ScaleOf(math.Float32frombits(s.Amax(from)), most, epsilon, powerOf2)
		inverses[b] = 1 / scale
		t.Merge(s.Encode(dst[b*BlockRow:][:BlockRow], from, f, scale, Saturate))
	}
	return t
}

// DecodeRows is the reverse of EncodeRows.
func (s Set) DecodeRows(dst []float32, src []byte, inverses []float32, f *Format) {
	for b, inverse := range inverses {
		s.Decode(dst[b*BlockRow:][:BlockRow], src[b*BlockRow:][:BlockRow], f, inverse)
	}
}

// EncodeTiles encodes a matrix in tiles of 128 by 128 with a scale each, row of tiles
// after row. At the edges tiles are what is left.
func (s Set) EncodeTiles(dst []byte, inverses []float32, src []float32, rows, cols int, f *Format, epsilon float32, powerOf2 bool) (t Tally) {
	most := f.Greatest()
	n := 0
	for r := 0; r < rows; r += BlockTile {
		for c := 0; c < cols; c += BlockTile {
			wide := min(BlockTile, cols-c)
			var amax uint32
			for i := r; i < min(r+BlockTile, rows); i++ {
				amax = max(amax, s.Amax(src[i*cols+c:][:wide]))
			}
			scale := ScaleOf(math.Float32frombits(amax), most, epsilon, powerOf2)
			for i := r; i < min(r+BlockTile, rows); i++ {
				t.Merge(s.Encode(dst[i*cols+c:][:wide], src[i*cols+c:][:wide], f, scale, Saturate))
			}
			inverses[n] = 1 / scale
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
