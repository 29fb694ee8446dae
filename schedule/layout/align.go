package layout

import "slices"

const (
	// leastAlign is of what every offset is a multiple.
	leastAlign = 4
	// line is what large buffers are aligned to, where that costs nothing: a cache line.
	line = 64
	// paddingDivisor is the part of what is alive that is lost where sizes that are whole
	// lines and others lie side by side.
	paddingDivisor = 1024
)

// natural is the alignment that buffers should have: a cache line, or for smaller ones
// the next power of two below.
func natural(bytes int64) int64 {
	align := int64(leastAlign)
	for align < line && align*2 <= bytes {
		align *= 2
	}
	return align
}

// whole is the largest alignment that leaves no padding behind a buffer of this size.
func whole(bytes int64) int64 {
	return min(max(bytes&-bytes, leastAlign), line)
}

// padded reports whether buffers of a program cannot lie side by side without padding.
func (p *player) padded(align func(int64) int64) bool {
	return slices.ContainsFunc(p.items, func(it item) bool { return it.bytes%align(it.bytes) != 0 })
}

// alignment returns the way to align that a program is laid out with: natural, but where
// every such layout is too high.
func (p *player) alignment() func(int64) int64 {
	if p.crowded() {
		return whole
	}
	return natural
}

// crowded reports whether no natural layout is as low as can be, because of the padding of
// what is alive at once. Small buffers may lie in the padding of others.
func (p *player) crowded() bool { return p.mostAlive().lines-line >= p.least() }

// alignments returns the ways to align that are worth another try: that of the layout where
// it was not searched for thoroughly, and before it one without padding.
func (a *attempt) alignments() (list []func(int64) int64) {
	if !a.played.crowded() && a.played.padded(natural) {
		list = append(list, whole)
	}
	if a.separate {
		list = append(list, a.played.alignment())
	}
	return list
}

// enough reports whether no search for a lower layout is worth it: there is none, or what
// is lost is little beside the padding of lines.
func (a *attempt) lowEnough() bool {
	return a != nil && (a.optimal() || a.played.crowded() && a.excess() <= a.played.most()/paddingDivisor)
}

// alive is what is alive at once of a played program, at most: in bytes as they are asked
// for, with the padding that every buffer has, and in lines, where what is smaller counts
// for nothing.
type alive struct{ bytes, padded, lines int64 }

// most returns the most bytes that are alive at once.
func (p *player) most() int64 { return p.mostAlive().bytes }

// least returns a height that no layout is below, where heights are rounded up to
// leastAlign.
func (p *player) least() int64 { return p.mostAlive().padded }

// mostAlive returns the most of it, of a program that has been played to its end.
func (p *player) mostAlive() *alive {
	if p.top != nil {
		return p.top
	}
	var live, top alive
	for _, change := range p.log {
		i, sign := change, int64(1)
		if change < 0 {
			i, sign = ^change, -1
		}
		bytes := p.items[i].bytes
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
