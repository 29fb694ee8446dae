package placement

import (
	"cmp"
	"slices"
)

// laps is a queue that goes round and round, lap after lap. What is born between one
// death and the next is a batch, and may lie in any order. So where a lap ends, some of a
// batch is the last of it and the rest is the first of the next lap, and which is a matter
// of choice: a cut.
//
// A lap begins at the bottom and ends at the limit. While the end of one and the beginning
// of the next are alive, the one above the other, what they do not fill is lost. It need
// not be lost at once: a lap may have room between its batches, and a batch sinks only so
// far as what lies above it from the lap before asks for. How far each does follows from
// the cuts. A queue of few and large batches, as microbatches in flight are, fits best if
// its cuts are chosen well: six buffers can be cut in 64 ways.
type laps struct {
	batches []batch
	round   bool  // the first batch follows the last one
	align   int64 // of all
	cuts    int   // of all batches
}

// batch is what is born between one death and the next, and dies so as well.
type batch struct {
	buffers []lapBuffer
	span    span    // columns; those of a round go on behind its last one
	bytes   int64   // of all of it, aligned
	end     int     // the first batch at whose birth it is dead, and all before it are
	load    int64   // bytes alive at its birth, if all live as long as that
	oldest  int     // of what is alive then, so many batches before it
	above   int64   // the most of load from the next birth to its end
	shares  []share // of it, ascending in bytes; the first is none of it, the last all
	cut     int     // the number of the cut behind its second share
}

// lapBuffer is a buffer of a batch.
type lapBuffer struct {
	buffer int32 // of the problem, or of the round
	period int32 // of the round, if the batch is of a later one than the buffer
	bunch  uint8 // that it belongs to
}

// share is some bunches of a batch.
type share struct {
	bunches uint32 // a set
	bytes   int64
}

// cut is where a lap ends and the next one begins: a share of a batch belongs to the one,
// the rest to the other.
type cut struct{ batch, share int }

// lap goes from a cut to a cut.
type lap struct {
	from, to cut
	bytes    int64
}

const (
	// lapBunches is into how many bunches a batch is put, that are in one lap or another.
	lapBunches = 6
	// lapAlive is how many batches are alive at once at most. More of them fit well
	// anyway.
	lapAlive = 16
	// lapCuts is how many cuts are looked at.
	lapCuts = 1 << 19
	// lapCoarse is the part of the bound that the lowest limit is first looked for above
	// it, four times as far at a time; lapFine is the part that is not worth a try.
	lapCoarse, lapFine = 1 << 10, 1 << 14
)

// newLaps puts buffers into batches: of a round where there are periods. It returns nil
// where sums of their bytes come near the end of int64.
func newLaps(p *Problem, spans []span, periods []int32) *laps {
	l := &laps{round: periods != nil, align: 1}
	order, bytes := make([]int32, len(spans)), int64(0)
	for i := range order {
		order[i] = int32(i)
		l.align = max(l.align, p.Buffers[i].Align)
		bytes += p.Buffers[i].Size
	}
	if bytes > maxBytes/lapAlive || l.align > maxBytes/lapAlive/int64(len(order)) {
		return nil
	}
	slices.SortStableFunc(order, func(x, y int32) int {
		return cmp.Or(cmp.Compare(spans[x].lower, spans[y].lower), cmp.Compare(spans[x].upper, spans[y].upper))
	})
	for _, i := range order {
		last := len(l.batches) - 1
		if last < 0 || l.batches[last].span != spans[i] {
			l.batches = append(l.batches, batch{span: spans[i]})
			last++
		}
		b := &l.batches[last]
		b.buffers = append(b.buffers, lapBuffer{buffer: i})
		if l.round {
			b.buffers[len(b.buffers)-1].period = periods[i]
		}
		b.bytes += alignUp(p.Buffers[i].Size, l.align)
	}
	return l
}

// prepare says whether the batches are such a queue, over a number of columns, with less
// than most alive at once. Then it gets all else ready.
func (l *laps) prepare(p *Problem, columns int32, most int64) bool {
	n := len(l.batches)
	for i := range l.batches {
		b := &l.batches[i]
		column, turns := b.span.upper, 0
		if l.round {
			column, turns = column%columns, int(column/columns)
		}
		b.end, _ = slices.BinarySearchFunc(l.batches, column, func(b batch, column int32) int { return cmp.Compare(b.span.lower, column) })
		b.end += turns * n
	}
	for turn, last := 0, 0; turn == 0 || turn == 1 && l.round; turn++ { // a round comes by where it began
		for i := range l.batches {
			last = max(last, l.batches[i].end)
			l.batches[i].end = last
		}
		last -= n
	}
	for i := range l.batches {
		b := &l.batches[i]
		if b.end > i+lapAlive {
			return false
		}
		for k := i; k < b.end; k++ {
			l.at(k).load += b.bytes
			l.at(k).oldest = max(l.at(k).oldest, k-i)
		}
	}
	for i := range l.batches {
		b := &l.batches[i]
		if b.load > most || l.cuts > lapCuts {
			return false
		}
		b.put(p, l.align)
		b.cut = l.cuts
		l.cuts += len(b.shares) - 1
		for k := i + 1; k < b.end; k++ {
			b.above = max(b.above, l.at(k).load)
		}
	}
	return true
}

// at returns a batch by its number, which goes on behind the last one of a round.
func (l *laps) at(k int) *batch { return &l.batches[k%len(l.batches)] }

// number returns the number of a cut.
func (l *laps) number(c cut) int { return l.at(c.batch).cut + c.share - 1 }

// end returns the first batch at whose birth a batch is dead.
func (l *laps) end(k int) int { return l.at(k).end + k - k%len(l.batches) }

// put puts the buffers of a batch into bunches, and makes its shares. Where there are many
// buffers a bunch is half of what is left: shares of such bunches are of about any number
// of bytes.
func (b *batch) put(p *Problem, align int64) {
	slices.SortStableFunc(b.buffers, func(x, y lapBuffer) int {
		return -cmp.Compare(p.Buffers[x.buffer].Size, p.Buffers[y.buffer].Size)
	})
	var bunches []int64
	left := b.bytes
	for i := range b.buffers {
		last := len(bunches) - 1
		if last < 0 || last+1 < lapBunches && (len(b.buffers)-i < lapBunches-last || bunches[last] >= left) {
			bunches = append(bunches, 0)
			last++
		}
		size := alignUp(p.Buffers[b.buffers[i].buffer].Size, align)
		bunches[last] += size
		left -= size
		b.buffers[i].bunch = uint8(last)
	}
	b.shares = make([]share, 1<<len(bunches))
	for set := range b.shares {
		b.shares[set].bunches = uint32(set)
		for k, bytes := range bunches {
			if set>>k&1 == 1 {
				b.shares[set].bytes += bytes
			}
		}
	}
	slices.SortStableFunc(b.shares, func(x, y share) int { return cmp.Compare(x.bytes, y.bytes) })
}

// rest returns the bytes behind a cut, of the batch that it is in.
func (l *laps) rest(c cut) int64 {
	if c.batch < 0 {
		return 0
	}
	b := l.at(c.batch)
	return b.bytes - b.shares[c.share].bytes
}

// follow calls do with all laps from a cut on that are worth a try below a limit: what is
// lost in a lap can be lost twice, at both of its ends. What is left to the end, where
// there is one, is a lap as well, of any size. It returns how much work it was.
func (l *laps) follow(from cut, bound, limit int64, do func(a lap)) (work int64) {
	bytes := l.rest(from)
	for k := from.batch + 1; bytes <= limit; k++ {
		if !l.round && k == len(l.batches) {
			do(lap{from, cut{batch: k}, bytes})
			break
		}
		b := l.at(k)
		if least := b.above - 2*(limit-bound); bytes+b.bytes >= least {
			n, _ := slices.BinarySearchFunc(b.shares, least-bytes, func(s share, bytes int64) int { return cmp.Compare(s.bytes, bytes) })
			for n = max(n, 1); n < len(b.shares) && bytes+b.shares[n].bytes <= limit; n++ {
				do(lap{from, cut{k, n}, bytes + b.shares[n].bytes})
				work++
			}
		}
		bytes += b.bytes
		work++
	}
	return work
}

// sink says how far the batches of a lap must lie below the limit, more than they would
// end to end: out has them from the last to the first. Before is that of the lap before,
// as far as it is known. It reports false where they do not fit.
//
// At the birth of a batch all that is alive lies, from the bottom up, in this lap up to
// the batch, and in the lap before from the oldest one on. The oldest has sunk by what
// before says; so the batch must be lower by as much as that and what is alive are more
// than this lap. And all below it must.
func (l *laps) sink(a lap, before []int64, limit int64, out []int64) ([]int64, bool) {
	out = out[:0]
	first := a.from.batch
	if first < 0 {
		return append(out, make([]int64, a.to.batch+1)...), a.bytes <= limit
	}
	if l.rest(a.from) == 0 {
		first++
	}
	crossed := l.end(a.from.batch) // from this one on the lap before is dead
	sunk := int64(0)
	for k := a.to.batch; k >= a.from.batch; k-- {
		if k >= first && k < crossed && (l.round || k < len(l.batches)) {
			b := l.at(k)
			if away := a.from.batch - (k - b.oldest); away >= 0 {
				if away >= len(before) {
					return out, false
				}
				sunk = max(sunk, b.load+before[away]-a.bytes)
			}
		}
		out = append(out, sunk)
	}
	return out, a.bytes+sunk <= limit
}

// fits says whether laps, one after the other, fit below a limit: those of a round until
// they lie as they did before. It calls put, if not nil, with all that they hold and its
// offsets.
func (l *laps) fits(all []lap, limit int64, sizes []Buffer, put func(batch int, x lapBuffer, at int64)) bool {
	var before, was, out []int64
	if l.round {
		before = make([]int64, lapAlive)
	}
	for turn := 0; ; turn++ {
		was = append(was[:0], before...)
		for _, a := range all {
			var ok bool
			if out, ok = l.sink(a, before, limit, out); !ok {
				return false
			}
			if put != nil {
				l.lay(a, out, limit, sizes, put)
			}
			before, out = out, before
		}
		if !l.round || settled(was, before) {
			return true
		}
		if turn == lapTurns {
			return false
		}
	}
}

// lapTurns is how often laps of a round are gone through, until they lie as they did.
const lapTurns = 32

// settled says whether two say the same of the batches of which both say something.
func settled(x, y []int64) bool {
	n := min(len(x), len(y), lapAlive)
	return slices.Equal(x[:n], y[:n])
}

// lay calls put with the buffers of a lap from bottom to top, and their offsets.
func (l *laps) lay(a lap, sunk []int64, limit int64, sizes []Buffer, put func(batch int, x lapBuffer, at int64)) {
	bottom := limit - limit%l.align - a.bytes // of the lap, end to end
	for k := max(a.from.batch, 0); k <= a.to.batch; k++ {
		if !l.round && k == len(l.batches) {
			return
		}
		b := l.at(k)
		here := ^uint32(0)
		switch k {
		case a.to.batch:
			here = b.shares[a.to.share].bunches
		case a.from.batch:
			here &^= b.shares[a.from.share].bunches
		}
		at := bottom - sunk[a.to.batch-k]
		for _, x := range b.buffers {
			if here>>x.bunch&1 == 1 {
				put(k, x, at)
				size := alignUp(sizes[x.buffer].Size, l.align)
				at += size
				bottom += size
			}
		}
	}
}

// lowest looks for laps below a limit that is as low as it finds one, at least wanted and
// at most most. Try returns laps that fit below a limit, or nil.
func (l *laps) lowest(sizes []Buffer, bound, wanted, most int64, try func(limit int64) []lap) (best []lap, limit int64) {
	low := wanted - 1
	for step := int64(0); best == nil; step = max(4*step, bound/lapCoarse, 1) {
		if limit = min(wanted+step, most); limit <= low {
			return nil, 0
		}
		if best = try(limit); best == nil {
			low = limit
		}
	}
	for {
		limit = l.tighten(best, sizes, wanted, limit)
		if limit-low <= bound/lapFine+1 {
			return best, limit
		}
		middle := low + (limit-low)/2
		if lower := try(middle); lower != nil {
			best, limit = lower, middle
		} else {
			low = middle
		}
	}
}

// tighten returns the lowest limit, from wanted on, below which laps fit that do below
// another one.
func (l *laps) tighten(all []lap, sizes []Buffer, wanted, limit int64) int64 {
	for low := wanted - 1; limit-low > 1; {
		if middle := low + (limit-low)/2; l.fits(all, middle, sizes, nil) {
			limit = middle
		} else {
			low = middle
		}
	}
	return limit
}
