package layout

import "slices"

const (
	// minAlign divides every offset.
	minAlign = 4
	// line is the alignment of large buffers, a cache line, unless it makes the layout higher.
	line = 64
	// If padding keeps every layout above the lower bound, a layout is low enough if its excess over the peak is at
	// most 1/paddingDivisor of the peak.
	paddingDivisor = 1024
)

// naturalAlign returns the preferred alignment of a buffer: a cache line, or for smaller buffers
// the largest power of two that is no larger than the buffer.
func naturalAlign(bytes int64) int64 {
	align := int64(minAlign)
	for align < line && align*2 <= bytes {
		align *= 2
	}
	return align
}

// unpaddedAlign returns the largest power of two, up to a cache line, that divides the size, so
// that no padding follows the buffer. It is at least minAlign.
func unpaddedAlign(bytes int64) int64 {
	return min(max(bytes&-bytes, minAlign), line)
}

// needsPadding reports whether some buffer of the program needs padding before the next one.
func (t *trace) needsPadding(align func(int64) int64) bool {
	return slices.ContainsFunc(t.allocations, func(it allocation) bool { return it.bytes%align(it.bytes) != 0 })
}

// alignment returns the alignment function for the program: naturalAlign, unless every layout
// with it is above the lower bound.
func (t *trace) alignment() func(int64) int64 {
	if t.boundByPadding() {
		return unpaddedAlign
	}
	return naturalAlign
}

// boundByPadding reports whether the padding of live buffers keeps every layout with naturalAlign
// above the lower bound. Buffers smaller than a line may be placed in the padding of others.
func (t *trace) boundByPadding() bool { return t.peaks().lines-line >= t.peaks().padded }

// alignments returns the alignment functions for the last, longer searches: first unpaddedAlign, unless
// it was already used or changes nothing; then the program's own, if every allocation is a group of its
// own. (Otherwise the same alignments are not searched again.)
func (a *attempt) alignments() (list []func(int64) int64) {
	if !a.boundByPadding() && a.needsPadding(naturalAlign) {
		list = append(list, unpaddedAlign)
	}
	if a.separate() {
		list = append(list, a.alignment())
	}
	return list
}

// liveBytes holds the live bytes at a moment, or their maxima.
type liveBytes struct {
	bytes  int64 // as requested
	change int   // the first change at which bytes reaches its maximum
	// padded counts every buffer rounded up to minAlign: a lower bound on the height of every layout,
	// if the height is rounded up too.
	padded int64
	lines  int64 // rounded up to cache lines, not counting buffers smaller than a line
}

// peaks returns the maxima over a whole trace.
func (t *trace) peaks() *liveBytes {
	if t.top != nil {
		return t.top
	}
	var live, top liveBytes
	for i, change := range t.log {
		number, sign := change, int64(1)
		if change < 0 {
			number, sign = ^change, -1
		}
		bytes := t.allocations[number].bytes
		live.bytes += sign * bytes
		live.padded += sign * roundUp(bytes, minAlign)
		if bytes >= line {
			live.lines += sign * roundUp(bytes, line)
		}
		if live.bytes > top.bytes {
			top.bytes, top.change = live.bytes, i
		}
		top.padded, top.lines = max(top.padded, live.padded), max(top.lines, live.lines)
	}
	t.top = &top
	return t.top
}

// roundUp rounds bytes up to a multiple of align, which is a power of two.
func roundUp(bytes, align int64) int64 { return (bytes + align - 1) &^ (align - 1) }
