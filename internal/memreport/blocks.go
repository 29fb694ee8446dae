package memreport

import (
	"math"
	"slices"
)

const (
	mostBlocks     = 128 // blocks of a rank
	mostBlockCells = 64  // positions of a block that have their own cell
	blockPoints    = 24  // points for the slope of a block
)

// blocks holds the levels of a rank by position in a step, relative to the first record's: one
// profile per step while they fit, then one for several steps.
type blocks struct {
	list  []block
	steps int64 // of a block
}

// block is the profile of several consecutive steps.
type block struct {
	first, last int64 // numbers of the steps
	profile
}

// add adds the level of a record of a step. step is the step's index, number its number.
func (b *blocks) add(step, number, position int64, above float64) {
	b.steps = max(b.steps, 1)
	if step/b.steps == mostBlocks {
		b.list = halved(b.list, func(into *block, next block) {
			into.last = next.last
			into.join(next.profile)
		})
		b.steps *= 2
	}
	if int(step/b.steps) == len(b.list) {
		b.list = append(b.list, block{first: number, profile: profile{most: mostBlockCells}})
	}
	last := &b.list[len(b.list)-1]
	last.last = number
	last.add(position, above)
}

// joined returns the joint profile of blocks [from, to).
func (b *blocks) joined(from, to int) (all profile) {
	for _, block := range b.list[from:to] {
		all.join(profile{cells: slices.Clone(block.cells), stride: block.stride})
	}
	return all
}

// points returns the mean levels of the steps from a block on, by position.
func (b *blocks) points(from int) (x, y []float64) {
	last := b.joined(from, len(b.list))
	return middles(last.buckets(mostPoints))
}

// lateRise is a rise within steps that begins after the first step.
type lateRise struct {
	rise
	block         int     // the first block that may rise
	first, last   int64   // the range of steps in which it may begin
	before, after profile // of steps that do not rise, and of steps that rise
}

// lateRise finds the cut between blocks whose slopes differ most, and returns the rise of the blocks
// after it relative to the blocks before it, without the two next to the cut, of which only a
// part may rise. It returns false if the difference does not rise, or if chance explains it.
func (b *blocks) lateRise() (l lateRise, ok bool) {
	n := len(b.list)
	if n < 3 {
		return l, false
	}
	slopes := make([]float64, n)
	for i := range b.list {
		slopes[i] = fit(middles(b.list[i].buckets(blockPoints))).Median
	}
	at := cut(slopes)
	l.before, l.after = b.joined(0, max(at-1, 1)), b.joined(min(at+1, n-1), n)
	above := l.after.minus(&l.before)
	if l.rise, ok = above.rise(1); !ok {
		return l, false
	}
	if _, rises := l.after.rise(1); !rises { // the level fell before, and falls less now
		return l, false
	}
	l.block = at
	if flat := fit(middles(l.before.buckets(mostPoints))).Median; slopes[at-1]-flat > l.Median/8 {
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
