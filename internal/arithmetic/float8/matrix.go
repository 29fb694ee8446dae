package float8

import (
	"math"
	"math/bits"
	"unsafe"
)

// Scaling says which elements of a matrix share a scale.
type Scaling uint8

// The scalings. Blocks at the end of a row and tiles at the edges may be smaller.
const (
	PerTensor Scaling = iota // all elements
	Rows128                  // every 128 elements of a row
	Tiles128                 // every tile of 128 by 128 elements
	MX32                     // every 32 elements of a row; scales are powers of two
	NV16                     // every 16 elements of a row share an E4M3 scale, and all elements one float32
)

// Matrix is a quantized matrix, stored row by row.
type Matrix struct {
	Format     *Format
	Scaling    Scaling
	Rows, Cols int
	// Codes holds Stride bytes for each row. In E2M1 a byte holds two codes, the first in its low
	// half.
	Codes  []byte
	Stride int
	// Factors holds the factors by which decoding multiplies: a single factor, or one for each
	// block or tile, row by row. It is empty in MX32.
	Factors []float32
	// Scales holds the scale of each block in MX32 (E8M0) and NV16 (E4M3).
	Scales []byte
	// Across is the number of blocks or tiles along a row.
	Across int
}

// Layout holds, in bytes, the offsets of the parts that follow the codes in a matrix's memory,
// and the size of that memory. A value that does not fit in an int is the largest int.
type Layout struct{ Factors, Scales, Size int }

// LayoutOf returns the layout of a matrix: its codes, then, from the next multiple of 4, its
// factors, then its scales.
func LayoutOf(s Scaling, f *Format, rows, cols int) Layout {
	_, layout := shape(s, f, rows, cols)
	return layout
}

// shape returns a matrix without its memory, and the layout of that memory.
func shape(s Scaling, f *Format, rows, cols int) (m Matrix, l Layout) {
	m = Matrix{Format: f, Scaling: s, Rows: rows, Cols: cols, Stride: cols, Across: blocksOf(cols, s.block())}
	if f.Mantissa == E2M1.Mantissa {
		m.Stride = blocksOf(cols, 2)
	}
	factors, scales := 1, 0
	switch s {
	case Rows128:
		factors = boundedProduct(rows, m.Across)
	case Tiles128:
		factors = boundedProduct(blocksOf(rows, BlockTile), m.Across)
	case MX32:
		factors, scales = 0, boundedProduct(rows, m.Across)
	case NV16:
		scales = boundedProduct(rows, m.Across)
	}
	l.Factors = boundedProduct(blocksOf(boundedProduct(rows, m.Stride), 4), 4)
	l.Scales = boundedSum(l.Factors, boundedProduct(factors, 4))
	l.Size = boundedSum(l.Scales, scales)
	return m, l
}

// block returns how many elements of a row share a scale: the largest int in PerTensor.
func (s Scaling) block() int { return [...]int{math.MaxInt, BlockRow, BlockTile, BlockMX, BlockNV}[s] }

// blocksOf returns the number of blocks that n elements occupy.
func blocksOf(n, block int) int { return n/block + min(n%block, 1) }

// boundedProduct and boundedSum multiply and add arguments that are not negative. On overflow
// they return the largest int.
func boundedProduct(a, b int) int {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt {
		return math.MaxInt
	}
	return int(lo)
}

func boundedSum(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// Open returns the matrix stored in data, which must have the size of the layout and an address that is a
// multiple of 4.
func Open(data []byte, s Scaling, f *Format, rows, cols int) Matrix {
	m, l := shape(s, f, rows, cols)
	m.Codes, m.Scales = data[:rows*m.Stride], data[l.Scales:l.Size:l.Size]
	if factors := data[l.Factors:l.Scales]; len(factors) > 0 {
		m.Factors = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(factors))), len(factors)/4)
	}
	return m
}

// flat reports whether the rows can be treated as a single row: in PerTensor, and with full blocks
// in a row.
func (m *Matrix) flat() bool {
	return m.Scaling == PerTensor || m.Scaling != Tiles128 && m.Cols%m.Scaling.block() == 0
}

// from returns the codes from element at of a row to the end of the matrix. In E2M1, at is even.
func (m *Matrix) from(row, at int) []byte {
	if m.Format.Mantissa == E2M1.Mantissa {
		at /= 2
	}
	return m.Codes[row*m.Stride+at:]
}

// factors returns the factors from element at of a row to the end of the matrix. A block begins
// at that element.
func (m *Matrix) factors(row, at int) []float32 {
	switch m.Scaling {
	case Rows128:
		return m.Factors[row*m.Across+at/BlockRow:]
	case Tiles128:
		return m.Factors[row/BlockTile*m.Across+at/BlockTile:]
	}
	return m.Factors
}

// scales returns the block scales from element at of a row to the end of the matrix. A block
// begins at that element.
func (m *Matrix) scales(row, at int) []byte {
	return m.Scales[row*m.Across+at/m.Scaling.block():]
}
