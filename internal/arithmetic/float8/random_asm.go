//go:build (amd64 || arm64) && !purego

package float8

// roundTable holds the constants with which the assembly rounds to a format, repeated in every
// lane of a register: the greatest value, the biased exponent of the smallest normal value, the
// number of bits that are dropped from a significand, and the number of mantissa bits.
type roundTable struct {
	most           [8]float32
	least, dropped [8]uint32
	mantissa       uint64
}

// roundTables is indexed by Mantissa.
var roundTables = [4]roundTable{1: E2M1.roundTable(), 2: E5M2.roundTable(), 3: E4M3.roundTable()}

func (f *Format) roundTable() (r roundTable) {
	for l := range r.most {
		r.most[l], r.least[l], r.dropped[l] = f.Greatest(), uint32(exponentBias+1-f.Bias), uint32(mantissaBits-f.Mantissa)
	}
	r.mantissa = uint64(f.Mantissa)
	return r
}

//go:noescape
func encodeRandom256(dst *byte, src *float32, random *uint32, n int, scales *float32, step int, r *roundTable) (amax, zeros uint32)

//go:noescape
func encodeRandomColumns256(dst *byte, dstStride int, src *float32, srcStride int, random *uint32, groups int, scales *float32, r *roundTable) (amax, zeros uint32)
