package memreport

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/trainer/report"
)

const (
	maxBlocks     = 128 // maximum number of blocks of a rank
	maxBlockCells = 64  // maximum number of cells of a block
	blockPoints   = 24  // maximum number of points for a block's slope
)

// blocks holds the levels of a rank by position in a step, relative to the level of the step's
// first record: one block per step while they fit, then one for several steps.
type blocks struct {
	compact[block]
	width int64 // positions per cell, the same in every block
}

// block summarizes several consecutive steps.
type block struct {
	first, last int64           // numbers of the steps
	cells       []report.Bucket // by position
}

// add adds the level of a record. step is the index of the record's step, and number is the
// step's number.
func (b *blocks) add(step, number, position int64, above float64) {
	for b.width = max(b.width, 1); position/b.width >= maxBlockCells; b.width *= 2 {
		for i := range b.list {
			b.list[i].cells = halved(b.list[i].cells, (*report.Bucket).Join)
		}
	}
	last := b.at(step, maxBlocks, (*block).join)
	if last.cells == nil {
		last.first = number
	}
	last.last = number
	cell := int(position / b.width)
	if cell == len(last.cells) {
		last.cells = append(last.cells, report.Bucket{})
	}
	last.cells[cell].Join(report.Point(float64(position), above))
}

// join merges the next block into this one.
func (b *block) join(next block) {
	n := min(len(b.cells), len(next.cells))
	for i := range n {
		b.cells[i].Join(next.cells[i])
	}
	b.last, b.cells = next.last, append(b.cells, next.cells[n:]...)
}

// joined returns the merged cells of blocks [from, to).
func (b *blocks) joined(from, to int) []report.Bucket {
	var all block
	for _, next := range b.list[from:to] {
		all.join(next)
	}
	return all.cells
}

// lateRise is a rise within steps that begins after the first step.
type lateRise struct {
	rise
	block         int             // the first block that may rise
	first, last   int64           // the range of steps in which it may begin
	before, after []report.Bucket // cells of the steps before the rise, and of those that rise
}

// lateRise finds the cut between blocks whose slopes differ most, and returns the rise of the blocks
// after it relative to the blocks before it. It leaves out the two blocks next to the cut, since
// only a part of them may rise, unless no other is on their side. It returns false if there are
// fewer than three blocks, or if the difference or the level after the cut does not rise by more
// than chance explains.
func (b *blocks) lateRise() (l lateRise, ok bool) {
	n := len(b.list)
	if n < 3 {
		return l, false
	}
	slopes := make([]float64, n)
	for i := range b.list {
		slopes[i] = fit(points(b.list[i].cells, blockPoints)).Median
	}
	at := cut(slopes)
	l.before, l.after = b.joined(0, max(at-1, 1)), b.joined(min(at+1, n-1), n)
	above := slices.Clone(l.after[:min(len(l.after), len(l.before))])
	for i := range above {
		above[i] = report.Bucket{First: above[i].First, Last: above[i].Last, Sum: above[i].Mean() - l.before[i].Mean(), Count: 1}
	}
	if l.rise, ok = riseOf(above, halvesOfStep); !ok {
		return l, false
	}
	if _, rises := riseOf(l.after, halvesOfStep); !rises { // the level fell before, and now falls more slowly
		return l, false
	}
	l.block = at
	if flat := fit(points(l.before, maxPoints)).Median; slopes[at-1]-flat > l.Median/8 {
		l.block--
	}
	l.first, l.last = b.list[l.block].first, b.list[at].last
	return l, true
}

// cut returns the index at which a list of at least two values splits best into two constant
// parts, by least squares.
func cut(values []float64) int {
	total := 0.0
	for _, v := range values {
		total += v
	}
	best, most, left := 1, math.Inf(-1), 0.0
	for k := 1; k < len(values); k++ {
		left += values[k-1]
		right := total - left
		if gain := left*left/float64(k) + right*right/float64(len(values)-k); gain > most {
			best, most = k, gain
		}
	}
	return best
}
