package layout

import (
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

const (
	// leastAlign is of what every offset is a multiple.
	leastAlign = 4
	// line is what large buffers are aligned to, where that costs nothing: a cache line.
	line = 64
	// littlePadding is the part of what is alive that is lost where sizes that are whole
	// lines and others lie side by side.
	littlePadding = 1024
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

// padded reports whether buffers of a problem cannot lie side by side without padding.
func padded(problem *placement.Problem) bool {
	return slices.ContainsFunc(problem.Buffers, func(b placement.Buffer) bool { return b.Size%max(b.Align, 1) != 0 })
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
func (p *player) crowded() bool {
	lines := p.atOnce(func(bytes int64) int64 {
		if bytes < line {
			return 0
		}
		return roundUp(bytes, line)
	})
	return lines-line >= p.least()
}

// alignments returns the ways to align that are worth another try: that of the layout where
// it was not searched for thoroughly, and before it one without padding.
func (a *attempt) alignments() (list []func(int64) int64) {
	if !a.played.crowded() && padded(a.problem(natural)) {
		list = append(list, whole)
	}
	if a.untied {
		list = append(list, a.played.alignment())
	}
	return list
}

// enough reports whether no search for a lower layout is worth it: there is none, or what
// is lost is little beside the padding of lines.
func (a *attempt) enough() bool {
	return a.met() || a.played.crowded() && a.lost() <= a.played.most()/littlePadding
}

// most returns the most bytes that are alive at once.
func (p *player) most() int64 { return p.atOnce(func(bytes int64) int64 { return bytes }) }

// least returns a height that no layout is below, where heights are rounded up to
// leastAlign: what is alive at once, with the padding that every buffer has.
func (p *player) least() int64 {
	return p.atOnce(func(bytes int64) int64 { return roundUp(bytes, leastAlign) })
}

// atOnce returns the most that is alive at once, of what each buffer counts for.
func (p *player) atOnce(count func(bytes int64) int64) (most int64) {
	var live int64
	for _, change := range p.log {
		if change < 0 {
			live -= count(p.items[^change].bytes)
		} else {
			live += count(p.items[change].bytes)
			most = max(most, live)
		}
	}
	return most
}

// roundUp returns the next multiple of a power of two.
func roundUp(bytes, align int64) int64 { return (bytes + align - 1) &^ (align - 1) }
