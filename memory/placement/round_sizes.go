package placement

import (
	"cmp"
	"context"
	"slices"
)

// sizes lays out a round size after size, the largest first. The buffers of a size are
// placed in order of birth at the lowest offset, for some periods, around those that are
// larger, which come back after a cycle. So whatever a buffer meets, it meets again: the
// offsets of a size come back as well, after one cycle or a few.
type sizes struct {
	round   *Round
	lives   int       // the longest life, and a period before it, in periods
	order   []int64   // sizes that are left
	cycle   int       // periods
	offsets [][]int64 // by period of the cycle and buffer; -1 has none yet
	height  int64
}

func newSizes(r *Round, lives int) *sizes {
	s := &sizes{round: r, lives: lives + 1, cycle: 1, offsets: [][]int64{make([]int64, len(r.Buffers))}}
	for i, b := range r.Buffers {
		s.offsets[0][i] = -1
		s.order = append(s.order, b.Size)
	}
	slices.Sort(s.order)
	s.order = slices.Compact(s.order)
	return s
}

// complete says whether every size is placed.
func (s *sizes) complete() bool { return len(s.order) == 0 }

// at returns where a buffer of a period lies.
func (s *sizes) at(period, buffer int) int64 {
	period %= s.cycle
	if period < 0 {
		period += s.cycle
	}
	return s.offsets[period][buffer]
}

// next places the next size. It reports false where there is none, or where it does not
// come back soon.
func (s *sizes) next(ctx context.Context) bool {
	if s.complete() {
		return false
	}
	size := s.order[len(s.order)-1]
	var own []int // buffers of the size, in order of birth
	lives := 0    // over how many beginnings of periods they live at most
	for i, b := range s.round.Buffers {
		if b.Size == size {
			own = append(own, i)
			lives = max(lives, int((b.Upper+s.round.Period-1)/s.round.Period))
		}
	}
	slices.SortFunc(own, func(x, y int) int { return cmp.Compare(s.round.Buffers[x].Lower, s.round.Buffers[y].Lower) })
	for periods := 16; periods <= 4*mostPeriods && ctx.Err() == nil; periods *= 2 {
		placed := s.place(ctx, own, periods)
		// Where all that lives over the beginning of a period lies as it did before.
		for to := lives + s.cycle; to <= len(placed); to++ {
			for from := to - s.cycle; from >= lives && to-from <= mostPeriods; from -= s.cycle {
				if slices.EqualFunc(placed[from-lives:from], placed[to-lives:to], slices.Equal[[]int64]) {
					s.repeat(own, placed[from:to], from)
					s.order = s.order[:len(s.order)-1]
					return true
				}
			}
		}
	}
	return false
}

// place places buffers of one size for some periods. It returns their offsets by period.
func (s *sizes) place(ctx context.Context, own []int, periods int) [][]int64 {
	r := s.round
	var p Problem
	var fixed []int64
	var order []int32
	for k := -s.lives; k < periods+s.lives; k++ {
		for i, b := range r.Buffers {
			at := s.at(k, i)
			if b.Lower, b.Upper = b.Lower+int64(k)*r.Period, b.Upper+int64(k)*r.Period; at >= 0 && b.Upper > 0 {
				p.Buffers, fixed = append(p.Buffers, b), append(fixed, at)
			}
		}
		for _, i := range own {
			if k >= 0 && k < periods {
				b := r.Buffers[i]
				b.Lower, b.Upper = b.Lower+int64(k)*r.Period, b.Upper+int64(k)*r.Period
				order = append(order, int32(len(p.Buffers)))
				p.Buffers, fixed = append(p.Buffers, b), append(fixed, -1)
			}
		}
	}
	g := newGrid(&p)
	g.fixed = fixed
	offsets := make([]int64, len(p.Buffers))
	g.place(context.WithoutCancel(ctx), newOccupied(g.columns), order, firstFit, offsets)
	placed := make([][]int64, periods)
	for k, i := range order {
		placed[k/len(own)] = append(placed[k/len(own)], offsets[i])
	}
	return placed
}

// repeat takes offsets for a cycle of periods, of which the first is a given one.
func (s *sizes) repeat(own []int, cycle [][]int64, first int) {
	offsets := make([][]int64, len(cycle))
	for k := range offsets {
		offsets[k] = make([]int64, len(s.round.Buffers))
		for i := range offsets[k] {
			offsets[k][i] = s.at(k, i)
		}
	}
	for k, placed := range cycle {
		for n, i := range own {
			offsets[(first+k)%len(cycle)][i] = placed[n]
			s.height = max(s.height, placed[n]+s.round.Buffers[i].Size)
		}
	}
	s.cycle, s.offsets = len(cycle), offsets
}
