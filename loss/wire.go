package loss

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrFormat is returned by UnmarshalBinary for bytes that this version of AppendBinary does not produce.
var ErrFormat = errors.New("loss: not a record")

// The layout of version 1, all little-endian.
//
//	0   "WLR" and the version, 1
//	4   uint32  number of cells
//	8   uint64  shape
//	16  the cells, 568 bytes each:
//	    0    uint8    reduction
//	    1    uint8    1 if a minimum or maximum is present, else 0
//	    2    6 bytes  0
//	    8    int64    number of records
//	    16   int64    lowest microbatch that was not finite, or -1
//	    24   float64  the minimum or maximum, or 0
//	    32   exact    sum
//	    300  exact    weight
//
// An exact is 65 limbs of 32 bits, lowest first, followed by the last limb as an int64: 268 bytes. The
// encoding is unique: equal records have equal bytes.
const (
	version    = 1
	headerSize = 16
	exactSize  = 4*top + 8
	cellSize   = 32 + 2*exactSize

	// maxTop is an upper bound on the magnitude of the last limb of a decoded sum, so that hundreds of
	// received records can be merged without overflow. It admits 2^35 additions of the largest finite
	// float64.
	maxTop = 1 << 53
	// maxCount is an upper bound on the number of records, for the same reason.
	maxCount = 1 << 53
)

// AppendBinary appends the encoded record to b. It returns an error that wraps ErrShape if the record
// was never filled or has more than MaxDefs cells.
func (r *Record) AppendBinary(b []byte) ([]byte, error) {
	if r.shape == 0 || len(r.cells) > MaxDefs {
		return b, fmt.Errorf("%w: cannot encode an empty record or one with more than %d cells, it has %d", ErrShape, MaxDefs, len(r.cells))
	}
	b = append(b, 'W', 'L', 'R', version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.cells)))
	b = binary.LittleEndian.AppendUint64(b, r.shape)
	for i := range r.cells {
		c := &r.cells[i]
		var has byte
		if c.hasExtreme {
			has = 1
		}
		b = append(b, byte(c.reduction), has, 0, 0, 0, 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, uint64(c.count))
		b = binary.LittleEndian.AppendUint64(b, uint64(c.first))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.extreme))
		b = c.sum.append(b)
		b = c.weight.append(b)
	}
	return b, nil
}

// UnmarshalBinary replaces r with the record encoded in b, reusing r's memory. It accepts only the unique
// encoding: encoding the result gives b again. It checks the length before it allocates, and keeps no
// part of b. If it fails, with an error that wraps ErrFormat, r is empty.
func (r *Record) UnmarshalBinary(b []byte) error {
	r.cells, r.shape = r.cells[:0], 0
	if len(b) < headerSize {
		return fmt.Errorf("%w: %d bytes, the header alone has %d", ErrFormat, len(b), headerSize)
	}
	if string(b[:3]) != "WLR" || b[3] != version {
		return fmt.Errorf("%w: starts with %q, expected \"WLR\\x01\" (version %d): run the same build on all ranks", ErrFormat, b[:4], version)
	}
	n, shape := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	if n > MaxDefs {
		return fmt.Errorf("%w: %d cells, at most %d are allowed", ErrFormat, n, MaxDefs)
	}
	if want := headerSize + int(n)*cellSize; len(b) != want {
		return fmt.Errorf("%w: %d bytes for %d cells, expected %d", ErrFormat, len(b), n, want)
	}
	if shape == 0 {
		return fmt.Errorf("%w: shape 0", ErrFormat)
	}
	for i := range int(n) {
		var c Cell
		if fault := c.decode(b[headerSize+i*cellSize:][:cellSize]); fault != "" {
			r.cells = r.cells[:0]
			return fmt.Errorf("%w: cell %d: %s", ErrFormat, i, fault)
		}
		r.cells = append(r.cells, c)
	}
	r.shape = shape
	return nil
}

// decode fills a zero Cell from its bytes. It returns a description of the fault, or "".
func (c *Cell) decode(b []byte) string {
	c.reduction = Reduction(b[0])
	c.hasExtreme = b[1] == 1
	count, first := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	c.count, c.first = int64(count), int64(first)
	c.extreme = math.Float64frombits(binary.LittleEndian.Uint64(b[24:]))
	sumOK := c.sum.decode(b[32:])
	weightOK := c.weight.decode(b[32+exactSize:])

	zeroSum, zeroWeight := c.sum == Exact{}, c.weight == Exact{}
	finite := c.extreme-c.extreme == 0
	switch {
	case !c.reduction.valid():
		return fmt.Sprintf("unknown reduction %d", b[0])
	case b[1] > 1 || [6]byte(b[2:8]) != [6]byte{}:
		return fmt.Sprintf("flags %x, expected 0 or 1 and six zeros", b[1:8])
	case count > maxCount:
		return fmt.Sprintf("%d records, expected at most %d", count, int64(maxCount))
	case c.first < -1 || int64(int(c.first)) != c.first:
		return fmt.Sprintf("microbatch %d, expected at least -1", c.first)
	case !sumOK || !weightOK || c.weight.negative():
		return "a sum whose last limb is out of range, or a negative weight"
	case c.hasExtreme && (!c.reduction.extremum() || !finite):
		return fmt.Sprintf("a %s with the extreme value %v", c.reduction, c.extreme)
	case !c.hasExtreme && math.Float64bits(c.extreme) != 0:
		return "an extreme value that is marked absent"
	case c.reduction.extremum() && !zeroSum:
		return fmt.Sprintf("a %s with a sum", c.reduction)
	case c.count == 0 && (c.hasExtreme || c.first >= 0 || !zeroSum || !zeroWeight):
		return "contents without a record"
	}
	return ""
}

func (a *Exact) append(b []byte) []byte {
	for _, limb := range a.w[:top] {
		b = binary.LittleEndian.AppendUint32(b, uint32(limb))
	}
	return binary.LittleEndian.AppendUint64(b, uint64(a.w[top]))
}

// decode fills a zero Exact and reports whether the magnitude of its last limb is at most maxTop.
func (a *Exact) decode(b []byte) bool {
	for i := range top {
		a.w[i] = int64(binary.LittleEndian.Uint32(b[4*i:]))
	}
	a.w[top] = int64(binary.LittleEndian.Uint64(b[4*top:]))
	return -maxTop <= a.w[top] && a.w[top] <= maxTop
}
