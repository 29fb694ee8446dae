package float8

import (
	"math"
	"math/bits"
	"unsafe"
)

// Scaling says which elements of a matrix share a scale.
type Scaling uint8

// The scalings. Blocks at the end of a row, and tiles at the edges, are what is left.
const (
	PerTensor Scaling = iota // all
	Rows128                  // 128 of a row
	Tiles128                 // 128 by 128
	MX32                     // 32 of a row: a power of two
	NV16                     // 16 of a row: an E4M3, and a float32 for all
)

// Matrix is a quantized matrix, row after row.
type Matrix struct {
	Format     *Format
	Scaling    Scaling
	Rows, Cols int
	// Codes has Stride bytes for each row: in E2M1 two codes in a byte, the first in the
	// low half.
	Codes  []byte
	Stride int
	// Factors is what decoding multiplies with: one, or one for each block or tile, row
	// after row of them. It is empty in MX32.
	Factors []float32
	// Scales has the scale of each block in MX32 (E8M0) and NV16 (E4M3).
	Scales []byte
	// Across is the number of blocks or tiles along a row.
	Across int
}

// shape is a matrix without its memory; bytes is all that it needs.
func shape(s Scaling, f *Format, rows, cols int) (m Matrix, bytes int) {
	m = Matrix{Format: f, Scaling: s, Rows: rows, Cols: cols, Stride: cols, Across: blocksOf(cols, s.block())}
	if f.Mantissa == E2M1.Mantissa {
		m.Stride = blocksOf(cols, 2)
	}
	factors, scales := 1, 0
	switch s {
	case Rows128:
		factors = times(rows, m.Across)
	case Tiles128:
		factors = times(blocksOf(rows, BlockTile), m.Across)
	case MX32:
		factors, scales = 0, times(rows, m.Across)
	case NV16:
		scales = times(rows, m.Across)
	}
	return m, sum(sum(times(blocksOf(times(rows, m.Stride), 4), 4), times(factors, 4)), scales)
}

// block returns the elements of a row that share a scale.
func (s Scaling) block() int { return [...]int{math.MaxInt, BlockRow, BlockTile, BlockMX, BlockNV}[s] }

// blocksOf returns how many blocks n elements make.
func blocksOf(n, block int) int { return n/block + min(n%block, 1) }

// times and sum return the largest int for what does not fit one. Their arguments are
// not negative.
func times(a, b int) int {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt {
		return math.MaxInt
	}
	return int(lo)
}

func sum(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// Size returns the bytes of a matrix: its codes, and from the next multiple of 4 on its
// factors, then its scales. It is the largest int where they are more than that.
func Size(s Scaling, f *Format, rows, cols int) int {
	_, bytes := shape(s, f, rows, cols)
	return bytes
}

// Open returns the matrix that lies in data, which has its size and begins at a multiple
// of 4.
func Open(data []byte, s Scaling, f *Format, rows, cols int) Matrix {
	m, bytes := shape(s, f, rows, cols)
	data = data[:bytes:bytes]
	codes := rows * m.Stride
	m.Codes, data = data[:codes], data[(codes+3)/4*4:]
	blocks := 0
	switch s {
	case MX32:
		m.Scales = data
		return m
	case NV16:
		blocks = rows * m.Across
	}
	factors := data[:len(data)-blocks]
	m.Factors = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(factors))), len(factors)/4)
	m.Scales = data[len(factors):]
	return m
}

// flat says that no block is short: rows follow each other as if they were one.
func (m *Matrix) flat() bool {
	return m.Scaling == PerTensor || m.Scaling != Tiles128 && m.Cols%m.Scaling.block() == 0
}

// from returns the codes of a row, and of those after it, from an element on, which is even
// in E2M1.
func (m *Matrix) from(row, at int) []byte {
	if m.Format.Mantissa == E2M1.Mantissa {
		at /= 2
	}
	return m.Codes[row*m.Stride+at:]
}

// factors returns the factors of a row, and of those after it, from an element on, which
// begins a block.
func (m *Matrix) factors(row, at int) []float32 {
	switch m.Scaling {
	case Rows128:
		return m.Factors[row*m.Across+at/BlockRow:]
	case Tiles128:
		return m.Factors[row/BlockTile*m.Across+at/BlockTile:]
	}
	return m.Factors
}

// scales returns the scales of the blocks of a row, and of those after it, from an element
// on, which begins one.
func (m *Matrix) scales(row, at int) []byte {
	return m.Scales[row*m.Across+at/m.Scaling.block():]
}
