package timing

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// measured holds the measurements of all steps of a run.
type measured struct {
	took    map[stageKind][]sample
	medians map[stageKind]int64 // the medians of took, which the report computes
	joined  map[int][]int64     // the times of joined pairs, by the stage of the first action
	gaps    [][]gap             // by rank
	// ahead is, by rank, the largest number of its untaken messages when it began an action. With
	// more of them it may have to wait until one is taken.
	ahead   []int
	links   map[[2]int]*linkTimes
	aside   []bool        // by rank: transfers run during computations
	perRank [][]rankTimes // by step
}

// sample is one computation.
type sample struct {
	step, microbatch int
	took             int64
}

// gap is the time before an action that could have begun, because its rank was free and its input
// was computed.
type gap struct {
	took  int64
	slack int64      // the time from the end of the input's computation until the rank was free
	from  int        // the rank that computed the input
	link  *linkTimes // the link of the input, or nil if it was computed on the same rank
}

// linkTimes holds the times of the messages from one rank to another.
type linkTimes struct {
	copying  []int64 // the times of messages that could be timed
	hop      int64   // the median of copying
	spans    bool    // the receives have spans
	messages int
	waiting  int64 // the time that receivers waited before the send began
}

// rankTimes holds the times of a rank in a step.
type rankTimes struct {
	first, last, busy, wire int64
}

// measure measures all steps.
func (u *run) measure() *measured {
	typical := u.typical()
	var m *measured
	ahead := make([]int, len(u.traces))
	for range 2 { // The first pass computes ahead.
		m = &measured{took: map[stageKind][]sample{}, medians: map[stageKind]int64{}, joined: map[int][]int64{}, gaps: make([][]gap, len(u.traces)), ahead: ahead, links: map[[2]int]*linkTimes{}, aside: make([]bool, len(u.traces))}
		for n, s := range u.steps {
			m.perRank = append(m.perRank, make([]rankTimes, len(s.ranks)))
			for rank := range s.ranks {
				m.rank(u, n, rank, typical)
			}
		}
	}
	for _, link := range m.links {
		link.hop = median(link.copying)
	}
	return m
}

// ready returns the time at which the input of an action was computed, and the rank. It returns
// math.MinInt64 and -1 if no other action computes the input.
func (u *run) ready(s *step, a schedule.Action) (at int64, from int) {
	p, there := u.neighbour(s, a, false)
	if !there {
		return math.MinInt64, -1
	}
	return s.ranks[p.rank][p.index].end, p.rank
}

// typical returns the median times of computations whose spans include no wait. If all spans of a
// kind include a wait, it is the shortest time between the computation of the input and the end of
// the span.
func (u *run) typical() map[stageKind]int64 {
	clean, least := map[stageKind][]int64{}, map[stageKind]int64{}
	for _, s := range u.steps {
		for _, events := range s.ranks {
			for _, e := range events {
				ready, _ := u.ready(s, e.action)
				key := kindOf(e.action)
				if e.start >= ready {
					clean[key] = append(clean[key], e.end-e.start)
				} else if old, known := least[key]; !known || e.end-ready < old {
					least[key] = max(e.end-ready, 0)
				}
			}
		}
	}
	for key, list := range clean {
		least[key] = median(list)
	}
	return least
}

const mostAhead = 64 // the number of last messages of a rank that count in measured.ahead

// rank measures a step of a rank.
func (m *measured) rank(u *run, n, rank int, typical map[stageKind]int64) {
	s := u.steps[n]
	times := &m.perRank[n][rank]
	times.first = math.MaxInt64
	free := int64(math.MinInt64)   // the time at which the rank became free
	worked := int64(math.MinInt64) // the end of the rank's last computation
	var taken []int64              // the times at which the rank's messages were taken
	ahead := func(now int64) (n int) {
		for _, at := range taken[max(len(taken)-mostAhead, 0):] {
			if at > now {
				n++
			}
		}
		return n
	}
	for i, e := range s.ranks[rank] {
		if e.start < free && !e.joined && e.action.Kind().Compute() == (free > worked) {
			m.aside[rank] = true
		}
		if !e.action.Kind().Compute() {
			free = max(free, e.end)
			continue
		}
		ready, from := u.ready(s, e.action)
		begin := e.start
		if begin < ready { // The span includes the wait.
			begin = max(ready, e.end-typical[kindOf(e.action)])
		}
		begin = min(begin, e.end)
		received := worked
		held := ahead(free) > m.ahead[rank]
		if held { // The rank may wait until a message is taken, and receive no message before.
			received = math.MaxInt64
		}
		if from >= 0 && from != rank {
			times.wire += m.message(s, &e, begin, from, rank, ready, received)
		}
		if free > math.MinInt64 && free >= ready && !e.joined && !held {
			one := gap{took: max(begin-free, 0), from: rank}
			if from >= 0 && from != rank {
				one.slack, one.from, one.link = free-ready, from, m.links[[2]int{from, rank}]
			}
			m.gaps[rank] = append(m.gaps[rank], one)
		}
		if next := i + 1; next < len(s.ranks[rank]) && s.ranks[rank][next].joined {
			m.joined[e.action.Stage()] = append(m.joined[e.action.Stage()], e.end-begin)
		} else if !e.joined {
			key := kindOf(e.action)
			m.took[key] = append(m.took[key], sample{n, e.action.Microbatch(), e.end - begin})
		}
		if !e.joined {
			times.busy += e.end - begin
		}
		m.ahead[rank] = max(m.ahead[rank], ahead(begin))
		if p, sent := u.neighbour(s, e.action, true); sent && p.rank != rank {
			taken = append(taken, s.ranks[p.rank][p.index].start)
		}
		times.first, times.last = min(times.first, begin), max(times.last, e.end)
		free, worked = max(free, e.end), max(worked, e.end)
	}
}

// message adds the message that an action takes, and returns the time that the rank waited while
// the message was copied.
func (m *measured) message(s *step, e *event, begin int64, from, to int, sent, received int64) int64 {
	end, timed := begin, sent >= received // A message that had arrived earlier cannot be timed.
	stage, send, receive := e.action.Stage(), schedule.SendF, schedule.RecvF
	other := stage - 1
	if e.action.Kind() != schedule.F {
		send, receive, other = schedule.SendB, schedule.RecvB, stage+1
	}
	key := [2]int{from, to}
	link := m.links[key]
	if link == nil {
		link = &linkTimes{}
		m.links[key] = link
	}
	if p, there := s.of[schedule.Act(receive, stage, e.action.Microbatch())]; there {
		span := s.ranks[p.rank][p.index]
		received, end, timed, link.spans = span.start, span.end, true, true
	}
	if p, there := s.of[schedule.Act(send, other, e.action.Microbatch())]; there {
		sent = s.ranks[p.rank][p.index].start
	}
	link.messages++
	if !timed {
		return 0
	}
	copying := max(end-max(sent, received), 0)
	link.copying = append(link.copying, copying)
	if received > math.MinInt64 {
		link.waiting += max(sent-received, 0)
	}
	return copying
}

// gap returns the median gap of a rank before actions whose input had arrived.
func (m *measured) gap(rank int) int64 {
	var all []int64
	for _, g := range m.gaps[rank] {
		hop := int64(0)
		if g.link != nil {
			hop = g.link.hop
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

// middle returns the step of median makespan.
func (m *measured) middle() int {
	var order []int
	for step := range m.perRank {
		order = append(order, step)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.makespan(a), m.makespan(b)) })
	return order[len(order)/2]
}

// median returns the upper median, or 0 for an empty list.
func median(list []int64) int64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
