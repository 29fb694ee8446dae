package placement

// Buffer is a number of bytes that is needed from Lower up to Upper, but not within
// its gaps.
type Buffer struct {
	Lower, Upper int64 // time, half open: Lower < Upper
	Size         int64 // bytes, positive
	Align        int64 // of the offset in bytes, a power of two; 0 is 1
	Gaps         []Gap // ascending, disjoint, strictly within Lower and Upper
}

// Gap is a time from Lower up to Upper at which the bytes of a buffer may be another
// one's. A buffer that is born again at the same offset is one buffer with gaps.
type Gap struct{ Lower, Upper int64 }

// Problem is a set of buffers to be laid out in one range.
type Problem struct{ Buffers []Buffer }

// Solution is where the buffers of a problem lie, and the certificate of it.
type Solution struct {
	Offsets []int64 // by buffer, bytes, from 0
	Certificate
}

// Certificate says how low a layout is, and whether a lower one is possible.
type Certificate struct {
	Height  int64  // the highest end of a buffer
	Bound   int64  // no layout is lower
	Optimal bool   // no layout is lower than Height
	Method  string // how it was found, in words
	Proof   string // why Optimal holds, or that nothing is proven
}

// Gap returns how far the height is above the bound, as a fraction of the bound.
func (c *Certificate) Gap() float64 {
	if c.Bound == 0 {
		return 0
	}
	return float64(c.Height-c.Bound) / float64(c.Bound)
}
