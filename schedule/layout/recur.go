package layout

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// A layout of a program that repeats itself often repeats itself too, though nobody told
// it to: where a buffer is placed depends on what lies there at its time, and that is the
// same again after a while. So some repeats are laid out, nothing tied to anything, and
// two moments are looked for at which the same is alive at the same offsets. What is
// between the two can be run again and again.

// recur looks for such a layout of about so many births: nil where it finds none.
func (p *Plan) recur(ctx context.Context, ports *ports, rank int, tied *player, search placement.Options, births int, work int64) (*attempt, error) {
	ways := map[int]way{}
	for s, span := range tied.spans {
		if span.passed > 0 {
			ways[s] = way{stay: horizon(tied, s, births), period: 1}
		}
	}
	for range 2 { // the second time with as many repeats as the period wants
		a, err := p.playFree(ports, rank, ways)
		if err != nil {
			return nil, err
		}
		if err := a.place(ctx, a.played.alignment(), search, work); err != nil {
			return nil, err
		}
		found, more := map[int]way{}, false
		for s, w := range ways {
			span := a.played.spans[s]
			if span.passed == 0 {
				continue // the whole segment was laid out
			}
			from, period := a.played.recurrence(s, span.lead+span.cycle-w.stay, a.laid.Offsets)
			if period == 0 {
				return nil, nil
			}
			if odd := span.passed % period; odd != 0 {
				ways[s] = way{stay: w.stay + odd, period: 1}
				more = true
				continue
			}
			stay := from + period - (span.lead + span.cycle - w.stay)
			found[s] = way{stay: stay, period: period, rest: p.plan.Programs[rank][s].Repeat - (from + period) - span.passed}
		}
		if more {
			continue
		}
		again, err := p.playFree(ports, rank, found)
		if err != nil {
			return nil, err
		}
		if !slices.EqualFunc(a.played.items, again.played.items, func(x, y item) bool {
			return x.birth == y.birth && x.death == y.death && x.bytes == y.bytes
		}) {
			return nil, nil
		}
		again.laid, again.align = a.laid, a.align
		return again, nil
	}
	return nil, nil
}

// horizon returns how many repeats of a segment are laid out, for so many births.
func horizon(tied *player, segment, births int) int {
	const (
		least = 24
		small = 64 // of a repeat of which less is born there are not more
	)
	n := 1
	for i := range tied.items {
		if it := &tied.items[i]; int(it.place.segment) == segment && it.repeat == int32(tied.spans[segment].lead) {
			n++
		}
	}
	return min(max(births/n, tied.spans[segment].cycle*4, least), births/small)
}

// recurrence returns a repeat of a segment, from its lead on, and after how many more the same is alive at
// the same offsets: 0 where that does not come to be.
func (p *player) recurrence(segment, lead int, offsets []int64) (from, period int) {
	span := p.spans[segment]
	pass := int32(span.lead + span.cycle) // the repeat behind which is the leap
	var states [][]uint64
	var repeats []int
	for _, v := range p.visits {
		if int(v.at.segment) != segment || v.at.index != 0 || int(v.at.repeat) < lead || v.at.repeat > pass {
			continue
		}
		var state []uint64
		for i := range p.items {
			it := &p.items[i]
			if it.birth >= v.since {
				break
			}
			if it.death <= v.since {
				continue
			}
			id := uint64(i)<<1 | 1
			if int(it.place.segment) == segment {
				id = uint64(v.at.repeat-it.repeat)<<44 | uint64(it.place.index)<<22 | uint64(it.ordinal)<<1
			}
			state = append(state, id, uint64(offsets[i]))
		}
		for k := len(states) - 1; k >= 0; k-- {
			if slices.Equal(states[k], state) {
				return repeats[k], int(v.at.repeat) - repeats[k]
			}
		}
		states, repeats = append(states, state), append(repeats, int(v.at.repeat))
	}
	return 0, 0
}
