package plantest

import (
	"math/rand/v2"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Nested returns a plan with the same actions in which some segments are nested loops. Several repeats of a
// segment become one repeat of an outer loop, divided at random into inner segments.
func Nested(p *schedule.Plan, rng *rand.Rand) *schedule.Plan {
	q := *p
	q.Programs = make([][]schedule.Segment, len(p.Programs))
	for rank, program := range p.Programs {
		for _, s := range program {
			size, cut := 1+rng.IntN(6), 1+rng.IntN(4)
			times := s.Repeat / size
			if s.Inner != nil || times == 0 || rng.IntN(4) == 0 {
				q.Programs[rank] = append(q.Programs[rank], s)
				continue
			}
			outer := schedule.Segment{Repeat: times, Stride: size * s.Stride}
			for from := 0; from < size; {
				to := from + 1 + rng.IntN(size-from)
				piece := repeatsOf(s, from, to)
				for at := 1; to == from+1 && at < len(piece.Body); at++ {
					if !piece.Body[at-1].Joined() && rng.IntN(cut) == 0 {
						first := piece
						first.Body, piece.Body = piece.Body[:at:at], piece.Body[at:]
						outer.Inner, at = append(outer.Inner, first), 0
					}
				}
				outer.Inner = append(outer.Inner, piece)
				from = to
			}
			q.Programs[rank] = append(q.Programs[rank], outer)
			if times*size < s.Repeat {
				q.Programs[rank] = append(q.Programs[rank], repeatsOf(s, times*size, s.Repeat))
			}
		}
	}
	return &q
}

// repeatsOf returns the repeats of a segment whose numbers are in the range [from, to).
func repeatsOf(s schedule.Segment, from, to int) schedule.Segment {
	body := slices.Clone(s.Body)
	for i, a := range body {
		body[i] = a.Shift(from * s.Stride)
	}
	return schedule.Segment{Body: body, Repeat: to - from, Stride: s.Stride}
}
