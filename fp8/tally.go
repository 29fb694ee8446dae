package fp8

import (
	"math"
)

// Tally holds statistics of a quantized tensor, over any number of microbatches.
type Tally struct {
	// Amax is the bit pattern of the greatest magnitude. Bit patterns compare like magnitudes,
	// with infinity above all numbers and NaN above infinity. It is 0 if all elements were
	// zero.
	Amax uint32
	// Least and Greatest are the least and the greatest scale by which elements were multiplied,
	// or 0 if there was none.
	Least, Greatest float32
	// NonFinite counts the elements that were infinite or NaN, Saturated those beyond the
	// greatest value of the format, and Underflowed the nonzero elements that became zero.
	NonFinite, Saturated, Underflowed uint64
}

// Merge merges another tally into t. The order of merges does not matter.
func (t *Tally) Merge(o Tally) {
	t.Amax = max(t.Amax, o.Amax)
	switch {
	case t.Least == 0:
		t.Least = o.Least
	case o.Least != 0:
		t.Least = min(t.Least, o.Least)
	}
	t.Greatest = max(t.Greatest, o.Greatest)
	t.NonFinite += o.NonFinite
	t.Saturated += o.Saturated
	t.Underflowed += o.Underflowed
}

// finite reports whether no element was infinite or NaN.
func (t *Tally) finite() bool { return t.Amax < 0x7f800000 }

// tallyOf reads a tally cell of package kernels.
func tallyOf(words []int32) Tally {
	word := func(i int) uint32 { return uint32(words[i]) }
	long := func(i int) uint64 { return uint64(word(i)) | uint64(word(i+1))<<32 }
	return Tally{
		Amax: word(0), Least: math.Float32frombits(word(1)), Greatest: math.Float32frombits(word(2)),
		NonFinite: uint64(word(3)), Saturated: long(4), Underflowed: long(6),
	}
}
