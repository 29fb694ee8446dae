package placement

// Buffer is a number of bytes that is needed from Lower up to Upper, except during its gaps.
type Buffer struct {
	Lower, Upper int64 // time, half open: Lower < Upper
	Size         int64 // bytes, positive
	Align        int64 // alignment of the offset in bytes, a power of two; 0 means 1
	Gaps         []Gap // in ascending order, disjoint, strictly within Lower and Upper
}

// Gap is a time from Lower up to Upper during which another buffer may use the bytes. A buffer that is
// allocated again at the same offset is one buffer with gaps.
type Gap struct{ Lower, Upper int64 }

// Problem is a set of buffers to be laid out in one range.
type Problem struct{ Buffers []Buffer }

// Solution is the layout of a problem with its certificate.
type Solution struct {
	Offsets []int64 // by buffer, bytes, from 0
	Certificate
}

// Certificate states the height of a layout, and whether a lower one is possible.
type Certificate struct {
	Height  int64  // the highest end of a buffer
	Bound   int64  // lower bound on the height of every layout
	Optimal bool   // it is proven that no layout is lower than Height
	Method  string // description of the method that found the layout
	Proof   string // the reason for Optimal, or a statement that nothing is proven
}

// Gap returns the excess of the height over the bound, as a fraction of the bound.
func (c *Certificate) Gap() float64 {
	if c.Bound == 0 {
		return 0
	}
	return float64(c.Height-c.Bound) / float64(c.Bound)
}
