package layout

import "github.com/weir-ml/weir/schedule"

// What lives for long in a class is much the same of every microbatch, and dies in the order
// in which it was born. Among that, what lives for a short while mixes up who follows whom.
// So there are several ways to split the buffers of a size, and the one is taken that needs
// the fewest places.

// split is a way to give buffers of one size to chains: those of each queue by its own
// number of places, and the rest as it comes.
type split struct {
	queues []*queue
	rest   []int32
}

// class is what a buffer is among those of its size: the nth that is born in an action of a
// kind.
type class struct {
	kind schedule.Kind
	size int64
	nth  int
}

// classes returns the class of each buffer that does not lie in the room.
func (s *steady) classes(p *player, room []int64) []class {
	classes := make([]class, len(s.Buffers))
	first := 0 // buffer of the action
	for kind, action := range p.actions(s.segment) {
		born := map[int64]int{} // by size
		for ; first < len(s.Buffers) && s.Buffers[first].Lower < action.end; first++ {
			if size := s.Buffers[first].Size; room[first] < 0 {
				classes[first] = class{kind, size, born[size]}
				born[size]++
			}
		}
	}
	return classes
}

// splits returns the ways for buffers of one size, in order of birth, within cycles that are
// not too long.
func (s *steady) splits(own []int32, classes []class, longest int) []split {
	all := s.queue(own, longest)
	apart := split{}
	of := map[class][]int32{}
	var order []class
	for _, i := range own {
		if of[classes[i]] == nil {
			order = append(order, classes[i])
		}
		of[classes[i]] = append(of[classes[i]], i)
	}
	for _, c := range order {
		if s.lasts(of[c]) {
			apart.queues = append(apart.queues, s.queue(of[c], longest))
		}
	}
	for _, i := range own {
		if !s.lasts(of[classes[i]]) {
			apart.rest = append(apart.rest, i)
		}
	}
	return []split{{queues: []*queue{all}}, apart, {rest: own}}
}

// lasts reports whether one of some buffers lives for half a period.
func (s *steady) lasts(own []int32) bool {
	for _, i := range own {
		if 2*s.life(i) >= s.Period {
			return true
		}
	}
	return false
}

// turns returns how buffers of one size take turns at few places, within a cycle.
func (s *steady) turns(splits []split, cycle int) (best []chain) {
	most := splits[0].queues[0].most
	for _, split := range splits {
		if best != nil && count(best) <= most+most/lostInClasses {
			break
		}
		if chains, ok := split.chains(s, cycle); ok && (best == nil || count(chains) < count(best)) {
			best = chains
		}
	}
	return best
}

// chains returns the chains of a split, false where a queue is not back after a cycle.
func (s *split) chains(round *steady, cycle int) (chains []chain, ok bool) {
	for _, q := range s.queues {
		if q.within(cycle) == 0 {
			return nil, false
		}
	}
	for _, q := range s.queues {
		chains = append(chains, q.chains(q.within(cycle))...)
	}
	return append(chains, round.pool(s.rest, cycle)...), true
}
