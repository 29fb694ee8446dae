package timing

import (
	"math"
	"slices"
)

// measured holds the measurements of all of a run's steps.
type measured struct {
	took    map[stageKind][]sample
	medians map[stageKind]int64 // the medians of took, which the report computes
	joined  map[int][]sample    // the times of joined pairs, by the stage of the first action
	gaps    [][]gap             // by rank
	// ahead is, by rank, the largest number of the rank's messages that had not been taken when it began an
	// action. With more such messages, the rank may have to wait until one is taken.
	ahead   []int
	links   map[[2]int]*Link
	aside   []bool        // by rank: whether transfers run during computations
	perRank [][]rankTimes // by step
}

// sample is the time of a computation.
type sample struct {
	step, microbatch int
	took             int64
}

// gap is the time before an action that could have begun, because its rank was free and its input
// was computed.
type gap struct {
	took  int64
	slack int64 // the time from the end of the input's computation until the rank was free
	from  int   // the rank that computed the input
	link  *Link // the link of the input, or nil if it was computed on the same rank
}

// rankTimes holds the times of a rank in a step.
type rankTimes struct {
	first, last int64
	RankTimes
}

// measure returns the measurements of all steps.
func (u *measurement) measure() *measured {
	typical, longest := u.typical()
	var m *measured
	ahead := make([]int, len(u.traces))
	for range 2 { // The first pass computes ahead.
		m = &measured{
			took: map[stageKind][]sample{}, medians: map[stageKind]int64{}, joined: map[int][]sample{}, gaps: make([][]gap, len(u.traces)),
			ahead: ahead, links: map[[2]int]*Link{}, aside: make([]bool, len(u.traces)),
		}
		for step, s := range u.steps {
			var times []rankTimes
			for _, events := range s {
				times = append(times, m.rank(step, events, typical, longest))
			}
			m.perRank = append(m.perRank, times)
		}
	}
	for _, link := range m.links {
		if link.Timed, link.Copying = len(link.copies), -1; link.Timed > 0 {
			link.Copying = median(link.copies)
		}
	}
	return m
}

// typical returns the median times of computations whose spans include no wait, and the times that only
// one in twenty of them exceeds. If all spans of a kind include a wait, both are the shortest time from the
// end of the input's computation to the end of the span.
func (u *measurement) typical() (typical, longest map[stageKind]int64) {
	clean := map[stageKind][]int64{}
	typical, longest = map[stageKind]int64{}, map[stageKind]int64{}
	for e := range u.events() {
		key := e.stageKind()
		if e.start >= e.ready() {
			clean[key] = append(clean[key], e.end-e.start)
		} else if old, known := typical[key]; !known || e.end-e.ready() < old {
			typical[key] = max(e.end-e.ready(), 0)
			longest[key] = typical[key]
		}
	}
	for key, list := range clean {
		slices.Sort(list)
		typical[key], longest[key] = list[(len(list)-1)/2], list[len(list)-1-len(list)/20]
	}
	return typical, longest
}

const maxAhead = 64 // the number of a rank's last messages that count in measured.ahead

// rank measures one rank's step.
func (m *measured) rank(step int, events []event, typical, longest map[stageKind]int64) rankTimes {
	rank, times := events[0].rank, rankTimes{first: math.MaxInt64}
	free := int64(math.MinInt64)   // the time at which the rank became free
	worked := int64(math.MinInt64) // the end of the rank's last computation
	var taken []int64              // the times at which the rank's messages were taken
	ahead := func(now int64) (n int) {
		for _, at := range taken[max(len(taken)-maxAhead, 0):] {
			if at > now {
				n++
			}
		}
		return n
	}
	for i := range events {
		e := &events[i]
		if e.start < free && !e.joined && e.action.Kind().Compute() == (free > worked) {
			m.aside[rank] = true
		}
		if !e.action.Kind().Compute() {
			free = max(free, e.end)
			continue
		}
		ready, begin := e.ready(), e.start
		earliest := begin
		if begin < ready { // The span includes the wait.
			begin = min(max(ready, e.end-typical[e.stageKind()]), e.end)
			earliest = min(max(ready, e.end-longest[e.stageKind()]), e.end)
		}
		received := worked
		held := ahead(free) > m.ahead[rank]
		if held { // The rank may wait until one of its messages is taken, and receives no message until then.
			received = math.MaxInt64
		}
		before := gap{from: rank}
		if e.input != nil && e.input.rank != rank {
			before.from, before.link = e.input.rank, m.link(e)
			times.Wire += before.link.message(e, begin, earliest, received)
			before.slack = free - ready
		}
		if free > math.MinInt64 && free >= ready && !e.joined && !held {
			before.took = max(begin-free, 0)
			m.gaps[rank] = append(m.gaps[rank], before)
		}
		one := sample{step, e.action.Microbatch(), e.end - begin}
		if next := i + 1; next < len(events) && events[next].joined {
			m.joined[e.action.Stage()] = append(m.joined[e.action.Stage()], one)
		} else if !e.joined {
			m.took[e.stageKind()] = append(m.took[e.stageKind()], one)
		}
		if !e.joined {
			times.Busy += e.end - begin
		}
		m.ahead[rank] = max(m.ahead[rank], ahead(begin))
		if e.taker != nil && e.taker.rank != rank {
			taken = append(taken, e.taker.start)
		}
		times.first, times.last = min(times.first, begin), max(times.last, e.end)
		free, worked = max(free, e.end), max(worked, e.end)
	}
	times.Wait = times.last - times.first - times.Busy
	return times
}

// link returns the link over which the message that an action takes was sent.
func (m *measured) link(e *event) *Link {
	key := [2]int{e.input.rank, e.rank}
	if m.links[key] == nil {
		m.links[key] = &Link{From: e.input.rank, To: e.rank}
	}
	return m.links[key]
}

// message adds the message that an action takes when it begins, and returns the time that the
// rank waited while the message was copied. If the span of the action includes the wait, begin is an
// estimate, and the action began at earliest if it took unusually long. received is the time from which
// the rank could receive the message.
func (l *Link) message(e *event, begin, earliest, received int64) int64 {
	sent, end, timed := e.input.end, begin, e.input.end >= received // A message that had arrived earlier cannot be timed.
	if r := e.receive; r != nil {
		received, end, earliest, timed, l.spans = r.start, r.end, r.end, true, true
	}
	if e.send != nil {
		sent = e.send.start
	}
	l.Messages++
	if !timed {
		return 0
	}
	copying := max(end-max(sent, received), 0)
	l.copies, l.Copied = append(l.copies, copying), l.Copied+copying
	l.least = append(l.least, max(earliest-max(sent, received), 0))
	if received > math.MinInt64 {
		l.Waiting += max(sent-received, 0)
	}
	return copying
}

// gap returns the median gap of a rank before actions whose input had arrived.
func (m *measured) gap(rank int) int64 {
	var all []int64
	for _, g := range m.gaps[rank] {
		hop := int64(0)
		if g.link != nil {
			hop = max(g.link.Copying, 0)
		}
		switch {
		case g.slack < hop:
		case m.ahead[g.from] == 0: // The sender waits for the receiver, so the gap includes the copy.
			all = append(all, max(g.took-hop, 0))
		default:
			all = append(all, g.took)
		}
	}
	return median(all)
}

// makespan returns the makespan of a step.
func (m *measured) makespan(step int) int64 {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, r := range m.perRank[step] {
		first, last = min(first, r.first), max(last, r.last)
	}
	return last - first
}

// median returns the median, or 0 for an empty list. Of two middle values it returns the lower one, since
// disturbances make times longer.
func median(list []int64) int64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[(len(list)-1)/2]
}
