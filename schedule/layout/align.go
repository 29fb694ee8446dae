package layout

import "slices"

const (
	// leastAlign divides every offset.
	leastAlign = 4
	// line is the alignment of large buffers, a cache line, if it does not make the layout
	// higher.
	line = 64
	// paddingDivisor: padding may waste 1/paddingDivisor of the live bytes if buffers of
	// whole cache lines and other buffers are adjacent.
	paddingDivisor = 1024
)

// naturalAlign returns the preferred alignment of a buffer: a cache line, or for smaller buffers
// the largest power of two that is no larger than the buffer.
func naturalAlign(bytes int64) int64 {
	align := int64(leastAlign)
	for align < line && align*2 <= bytes {
		align *= 2
	}
	return align
}

// unpaddedAlign returns the largest power of two, up to a cache line, that divides the size, so
// that no padding follows the buffer. It is at least leastAlign.
func unpaddedAlign(bytes int64) int64 {
	return min(max(bytes&-bytes, leastAlign), line)
}

// needsPadding reports whether some buffer of the program needs padding before the next one.
func (p *player) needsPadding(align func(int64) int64) bool {
	return slices.ContainsFunc(p.allocations, func(it allocation) bool { return it.bytes%align(it.bytes) != 0 })
}

// alignment returns the alignment function for the program: naturalAlign, unless every layout
// with it is above the lower bound.
func (p *player) alignment() func(int64) int64 {
	if p.boundByPadding() {
		return unpaddedAlign
	}
	return naturalAlign
}

// boundByPadding reports whether the padding of live buffers keeps every layout with naturalAlign
// above the lower bound. Buffers smaller than a line may be placed in the padding of others.
func (p *player) boundByPadding() bool { return p.peaks().lines-line >= p.heightBound() }

// alignments returns the alignment functions for the last searches: the one without padding, unless it
// was used already or changes nothing; then that of the program, if every allocation is placed
// separately.
func (a *attempt) alignments() (list []func(int64) int64) {
	if !a.played.boundByPadding() && a.played.needsPadding(naturalAlign) {
		list = append(list, unpaddedAlign)
	}
	if a.separate {
		list = append(list, a.played.alignment())
	}
	return list
}

// liveBytes holds the live bytes at a moment, or their maxima: as requested, with every buffer
// rounded up to leastAlign, and rounded up to lines, without buffers smaller than a line.
type liveBytes struct{ bytes, padded, lines int64 }

// peakBytes returns the largest number of live bytes.
func (p *player) peakBytes() int64 { return p.peaks().bytes }

// heightBound returns a lower bound of the height of every layout, with heights rounded up to
// leastAlign.
func (p *player) heightBound() int64 { return p.peaks().padded }

// peaks returns the maxima over a program that has been played to its end.
func (p *player) peaks() *liveBytes {
	if p.top != nil {
		return p.top
	}
	var live, top liveBytes
	for _, change := range p.log {
		i, sign := change, int64(1)
		if change < 0 {
			i, sign = ^change, -1
		}
		bytes := p.allocations[i].bytes
		live.bytes += sign * bytes
		live.padded += sign * roundUp(bytes, leastAlign)
		if bytes >= line {
			live.lines += sign * roundUp(bytes, line)
		}
		top.bytes, top.padded, top.lines = max(top.bytes, live.bytes), max(top.padded, live.padded), max(top.lines, live.lines)
	}
	p.top = &top
	return p.top
}

// roundUp returns the next multiple of a power of two.
func roundUp(bytes, align int64) int64 { return (bytes + align - 1) &^ (align - 1) }
