package placement

import (
	"context"
	"math"
	"math/rand/v2"
)

// neighbours lays out buffers in order of birth, each beside the one that dies next to
// it: what dies together leaves one hole and not two. Stages that save for a later
// backward and also work in short-lived buffers are laid out well by it, whatever their
// sizes: what is saved gathers at one side of the room that is free, what is short-lived
// at the other side.
//
// How much else counts is drawn anew for every layout: what lies at the floor or under
// the limit, a hole that is filled exactly, one that is left too small.
type neighbours struct {
	shelf
	changes []change
	limit   int64
	rng     *rand.Rand

	floor, ceiling float64 // how far away, in lifetimes, the death of a neighbour is that is none
	exact          float64 // by what the distance is multiplied in a hole that is filled
	scrap          float64 // how much further away, in lifetimes, where as much again is left as is filled
	noise          float64 // random part of a distance
}

func newNeighbours(p *Problem, seed uint64) *neighbours {
	return &neighbours{shelf: newShelf(p), changes: p.changes(), rng: rand.New(rand.NewPCG(seed, uint64(len(p.Buffers))))}
}

// draw draws what counts how much.
func (s *neighbours) draw() {
	s.floor = float64(int(1)<<s.rng.IntN(4)) / 4
	s.ceiling = float64(int(1)<<s.rng.IntN(4)) / 4
	s.exact = s.rng.Float64()
	s.scrap = max(0, s.rng.Float64()-0.5)
	s.noise = max(0, s.rng.Float64()-0.5)
}

// plain counts nothing at random: the same state goes on in the same way.
func (s *neighbours) plain() {
	s.floor, s.ceiling, s.exact, s.scrap, s.noise = 0.5, 0.5, 0.25, 0, 0
}

// within lays out all buffers below a limit. It says whether it could, and how many
// nodes it took.
func (s *neighbours) within(ctx context.Context, limit int64) (found bool, nodes int64) {
	s.limit, s.live = limit, s.live[:0]
	for _, c := range s.changes {
		if !c.birth {
			s.end(c.buffer)
			continue
		}
		if nodes += 1 + int64(len(s.live)/64); nodes%1024 == 0 && ctx.Err() != nil {
			return false, nodes
		}
		at := s.find(&s.problem.Buffers[c.buffer])
		if at < 0 {
			return false, nodes
		}
		s.put(c.buffer, at)
	}
	return true, nodes
}

// find returns the end of a hole where the neighbour's death is the nearest to that of a
// buffer, or -1 where there is no hole.
func (s *neighbours) find(b *Buffer) (best int64) {
	best = -1
	life := float64(b.Upper) - float64(b.Lower)
	nearest := math.Inf(1)
	from := int64(0)
	for k := range len(s.live) + 1 {
		to := s.limit
		if k < len(s.live) {
			to = s.live[k].lower
		}
		low, high := alignUp(from, b.Align), to-b.Size
		if b.Align > 1 {
			high &^= b.Align - 1
		}
		if low <= high {
			below, above := s.floor*life, s.ceiling*life
			if k > 0 {
				below = s.apart(b, k-1)
			}
			if k < len(s.live) {
				above = s.apart(b, k)
			}
			if left := to - from - b.Size; left == 0 {
				below = min(below, above) * s.exact
			} else if left < b.Size {
				further := s.scrap * life * float64(left) / float64(b.Size)
				below += further
				above += further
			}
			if below < nearest {
				best, nearest = low, below
			}
			if above < nearest {
				best, nearest = high, above
			}
		}
		if k < len(s.live) {
			from = s.live[k].upper
		}
	}
	return best
}

// apart returns how far apart in time the deaths of a buffer and of a living one are.
func (s *neighbours) apart(b *Buffer, k int) float64 {
	d := math.Abs(float64(s.problem.Buffers[s.live[k].buffer].Upper) - float64(b.Upper))
	if s.noise > 0 {
		d *= 1 + float64(s.noise*s.rng.Float64()) // rounded alike on every machine
	}
	return d
}
