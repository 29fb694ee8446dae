package layout

import "slices"

// cut returns a program, played with leaps, as one that is two at each of them: what is alive
// there ends before it, as the microbatch that it was born for, and is born again behind it,
// as the one that it then stands for. So everything is of one microbatch, and of one repeat,
// for as long as it lives, and nothing is said of how many repeats are passed over. The cycles
// become those of the rounds. Last says, by item, which one it is in the end.
func (p *player) cut(rounds []*steady) (q *player, last []int32) {
	q, last = new(player), make([]int32, len(p.items))
	*q = *p
	q.items, q.log, q.visits, q.top = make([]item, 0, len(p.items)), make([]int32, 0, len(p.log)), make([]visit, 0, len(p.visits)), nil
	q.spans = slices.Clone(p.spans)
	for _, round := range rounds {
		q.spans[round.segment].cycle = round.laid.Cycle
	}
	// born and ends change the new program.
	born := func(i int32, it item) {
		last[i] = int32(len(q.items))
		it.birth = int32(len(q.log))
		q.items, q.log = append(q.items, it), append(q.log, last[i])
	}
	ends := func(i int32) {
		q.items[last[i]].death = int32(len(q.log))
		q.log = append(q.log, ^last[i])
	}
	for k, v := range p.visits {
		if s, n := p.behind(k); n > 0 {
			alive := p.aliveAt(v.since, s)
			for _, i := range alive {
				before := &q.items[last[i]]
				before.place.repeat = before.repeat
				if before.origin.microbatch >= 0 {
					before.origin.microbatch -= int32(n * p.program[s].Stride)
				}
				ends(i)
			}
			for _, i := range alive {
				it := p.items[i]
				it.again = true
				born(i, it)
			}
		}
		q.visits = append(q.visits, visit{v.at, int32(len(q.log))})
		for _, change := range p.changes(k) {
			if change < 0 {
				ends(^change)
			} else {
				born(change, p.items[change])
			}
		}
	}
	return q, last
}

// behind returns how many repeats of which segment were passed over before a visit.
func (p *player) behind(visit int) (segment, passed int) {
	if visit == 0 {
		return 0, 0
	}
	before, now := p.visits[visit-1].at, p.visits[visit].at
	span := &p.spans[before.segment]
	if last := int(before.repeat) + 1; last != span.lead+span.cycle || now.segment == before.segment && int(now.repeat) < last {
		return 0, 0
	}
	return int(before.segment), span.passed
}

// aliveAt returns what is alive after so many changes, of those items that are born in a
// segment.
func (p *player) aliveAt(changes int32, segment int) (items []int32) {
	for i := range p.items {
		if it := &p.items[i]; it.birth < changes && it.death >= changes && int(it.place.segment) == segment {
			items = append(items, int32(i))
		}
	}
	return items
}

// changes returns what changes in a visit.
func (p *player) changes(visit int) []int32 {
	if visit+1 < len(p.visits) {
		return p.log[p.visits[visit].since:p.visits[visit+1].since]
	}
	return p.log[p.visits[visit].since:]
}
