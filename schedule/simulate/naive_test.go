package simulate_test

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
)

var errNaiveDeadlock = errors.New("nobody goes on")

// naive simulates a plan with a clock that advances from event to event. At each event every rank
// runs all actions that it can run at that time.
type naive struct {
	plan      *schedule.Plan
	costs     *simulate.Costs
	capacity  int
	transfers bool
	now       int64

	lists   [][]schedule.Action // by rank, each repeat expanded
	at      []int               // by rank: the position of the next action
	free    []int64             // by rank: the time at which it is free for the next action
	results []func()            // by rank: the function to call at that time

	messages map[[3]int]*naiveMessage   // by sending stage, receiving stage and microbatch
	sent     map[[3]int][]*naiveMessage // by sending rank, receiving rank and direction: all messages so far
	taken    map[[3]int]int             // the number of these messages that have been received
	posted   map[[3]int][]naiveEnd      // by queue of a PyTorch plan: the posted ends whose messages have not begun
	lines    map[[3]int]int64           // by queue: the time at which its last message has been transmitted

	lanes    map[[2]int]int64      // by rank and lane (0 offloads, 1 reloads, 2 reductions, 3 gathers): the time at which it is free
	gathered map[int]*naiveMessage // by stage: gathered weights for which no computation has waited
	reduced  map[int]*naiveMessage // by stage: the last reduction

	events [][]simulate.TimedAction
	waits  [][]naiveWait
}

type naiveMessage struct {
	key         [3]int
	wire, there int64
	received    int64 // -1 if not received
	lane        int   // 1 for copies to and from far memory, 2 and 3 for exchanges of replicas
}

type naiveWait struct {
	from, to int64
	position int
	message  *naiveMessage
}

func runNaive(plan *schedule.Plan, costs *simulate.Costs, capacity int) (*naive, error) {
	n := &naive{plan: plan, costs: costs, capacity: capacity, messages: map[[3]int]*naiveMessage{}, sent: map[[3]int][]*naiveMessage{}, taken: map[[3]int]int{}, posted: map[[3]int][]naiveEnd{}, lines: map[[3]int]int64{}, lanes: map[[2]int]int64{}, gathered: map[int]*naiveMessage{}, reduced: map[int]*naiveMessage{}}
	ranks := plan.Placement.Ranks
	for rank := range ranks {
		n.lists = append(n.lists, slices.Collect(plan.All(rank)))
		for _, a := range n.lists[rank] {
			n.transfers = n.transfers || a.Kind() >= schedule.SendF && a.Kind() <= schedule.RecvB
		}
	}
	n.at, n.free, n.results = make([]int, ranks), make([]int64, ranks), make([]func(), ranks)
	n.events, n.waits = make([][]simulate.TimedAction, ranks), make([][]naiveWait, ranks)
	for {
		for again := true; again; {
			again = false
			for _, rank := range rand.Perm(ranks) {
				for n.free[rank] <= n.now && n.step(rank) {
					again = true
				}
			}
		}
		next := int64(-1)
		later := func(t int64) {
			if t > n.now && (next < 0 || t < next) {
				next = t
			}
		}
		for _, t := range n.free {
			later(t)
		}
		for _, m := range n.messages {
			later(m.there)
		}
		for _, exchanges := range []map[int]*naiveMessage{n.gathered, n.reduced} {
			for _, m := range exchanges {
				later(m.there)
			}
		}
		if next < 0 {
			break
		}
		n.now = next
	}
	for rank := range ranks {
		if n.at[rank] < len(n.lists[rank]) {
			return nil, errNaiveDeadlock
		}
	}
	return n, nil
}

// stage returns the costs of a stage, for the microbatch if one is given.
func (n *naive) stage(s int, mb ...int) simulate.StageCosts {
	c := n.constants(s)
	if len(mb) == 0 || n.costs.Lengths == nil {
		return c
	}
	size := n.costs.Lengths[n.plan.BatchIndex(mb[0])]
	costs := reflect.ValueOf(&c).Elem()
	for field := range reflect.TypeFor[simulate.Rates]().Fields() {
		rate := func(per simulate.Rates) float64 { return reflect.ValueOf(per).FieldByName(field.Name).Float() }
		one := costs.FieldByName(field.Name)
		one.SetInt(one.Int() + int64(math.Round(rate(c.PerToken)*float64(size.Tokens)+rate(c.PerSquare)*float64(size.Squares))))
	}
	return c
}

func (n *naive) constants(s int) simulate.StageCosts {
	switch len(n.costs.Stages) {
	case 1:
		return n.costs.Stages[0]
	case n.plan.Placement.Stages():
		return n.costs.Stages[s]
	}
	return n.costs.Stages[s%n.plan.Placement.Depth()]
}

// away returns the offloaded bytes of the saved state of a stage.
func (n *naive) away(s, mb int) int64 {
	if c := n.stage(s, mb); c.Offloaded > 0 {
		return c.Offloaded
	}
	return n.stage(s, mb).Saved
}

// peers returns the bytes that replicas exchange in an action of a stage.
func (n *naive) peers(kind schedule.Kind, s int) int64 {
	r, c := int64(max(1, n.costs.Replicas)), n.stage(s)
	bytes, times := c.Weights, int64(1)
	if kind == schedule.ReduceGrad {
		bytes = c.Gradients
		if n.costs.Shard == 0 {
			times = 2
		}
	}
	own := bytes / r
	if bytes%r > 0 {
		own++
	}
	return times * (bytes - own)
}

// apart returns the latency between replicas.
func (n *naive) apart() int64 {
	if n.costs.Replicas > 1 {
		return n.costs.ReplicaLatency
	}
	return 0
}

// held returns the bytes of weights, gradients and optimizer state that a stage keeps.
func (n *naive) held(s int) (bytes int64) {
	r, c := int64(max(1, n.costs.Replicas)), n.stage(s)
	for i, whole := range []int64{c.Optimizer, c.Gradients, c.Weights} {
		if n.costs.Shard > i {
			whole = (whole + r - 1) / r
		}
		bytes += whole
	}
	return bytes
}

// time returns the time of a computation, and the part of it spent on recomputation.
func (n *naive) time(a schedule.Action) (all, recompute int64) {
	c := n.stage(a.Stage(), a.Microbatch())
	if n.plan.StageInfo == nil || n.plan.StageInfo[a.Stage()].Recomputes {
		recompute = c.Recompute
	}
	switch {
	case a.Kind() == schedule.Quantize:
		return c.Quantize, 0
	case a.Kind() == schedule.F:
		return c.F, 0
	case a.Kind() == schedule.W:
		return c.W, 0
	case a.Kind() == schedule.I:
		return c.I + recompute, recompute
	case c.B == 0:
		return c.I + c.W + recompute, recompute
	}
	return c.B + recompute, recompute
}

// crosses reports whether a stage of a plan sends messages to a stage on another rank.
func crosses(plan *schedule.Plan, from, to int) bool {
	p := plan.Placement
	if from < 0 || to < 0 || from >= p.Stages() || to >= p.Stages() || from/p.Depth() != to/p.Depth() {
		return false
	}
	return p.Rank[from] != p.Rank[to] && (to > from || plan.HasBackward(to))
}

// needs returns the message for which a computation waits, if any.
func (n *naive) needs(a schedule.Action) (key [3]int, remote bool) {
	s := a.Stage()
	from := s
	switch a.Kind() {
	case schedule.F:
		from = s - 1
	case schedule.B, schedule.I:
		from = s + 1
	}
	return [3]int{from, s, a.Microbatch()}, (!n.transfers || n.posts()) && from != s && crosses(n.plan, from, s)
}

// posts reports whether ranks post their transfers without waiting.
func (n *naive) posts() bool { return n.transfers && n.plan.Runtime.Posts() }

// naiveEnd is an end of the message with a key: 0 is the send, 1 the receive.
type naiveEnd struct {
	end int
	key [3]int
}

// queue returns the key of the queue in which an end of a transfer waits.
func (n *naive) queue(e naiveEnd) [3]int {
	p, back := n.plan.Placement, 0
	own, peer := p.Rank[e.key[e.end]], p.Rank[e.key[1-e.end]]
	if e.key[1] < e.key[0] {
		back = 1
	}
	switch n.plan.Runtime {
	case schedule.PyTorch29, schedule.PyTorch215:
		return [3]int{own}
	case schedule.PyTorch214, schedule.PyTorch215Lazy:
		return [3]int{own, peer}
	case schedule.PyTorch214Direction:
		return [3]int{own, back}
	}
	return [3]int{own, peer, e.end}
}

// post posts an end, and transmits the messages both of whose ends are the first in their queues.
func (n *naive) post(posted naiveEnd) {
	at := n.queue(posted)
	n.posted[at] = append(n.posted[at], posted)
	for again := true; again; {
		again = false
		for _, list := range n.posted {
			if len(list) == 0 || list[0].end == 1 {
				continue
			}
			send := n.queue(list[0])
			receive := n.queue(naiveEnd{1, list[0].key})
			if other := n.posted[receive]; len(other) > 0 && other[0] == (naiveEnd{1, list[0].key}) {
				n.posted[send], n.posted[receive], again = list[1:], other[1:], true
				free := n.transmit(list[0].key, max(n.now, n.lines[send], n.lines[receive]))
				n.lines[send], n.lines[receive] = free, free
			}
		}
	}
}

// transmit sends a message over its link, not before the given time, and returns the time at which the
// link becomes free.
func (n *naive) transmit(key [3]int, wire int64) int64 {
	p, c := n.plan.Placement, n.stage(key[0], key[2])
	latency, perMiB, bytes, dir := n.costs.Latency, n.costs.PerMiB, c.Output, 0
	if key[1] < key[0] {
		bytes, dir = c.Gradient, 1
	}
	from, to := p.Rank[key[0]], p.Rank[key[1]]
	for _, l := range n.costs.Links {
		if l.From == from && l.To == to {
			latency, perMiB = l.Latency, l.PerMiB
		}
	}
	duration := (bytes*perMiB + 1<<20 - 1) / (1 << 20)
	link := [3]int{from, to, dir}
	if n.plan.Runtime.Posts() && n.plan.Runtime != schedule.PyTorch214Direction {
		link[2] = 0
	}
	if before := n.sent[link]; len(before) > 0 && !n.posts() {
		last := before[len(before)-1]
		wire = max(wire, last.there-latency)
	}
	m := &naiveMessage{key: key, wire: wire, there: wire + duration + latency, received: -1}
	n.messages[key] = m
	n.sent[link] = append(n.sent[link], m)
	return wire + duration
}

// step runs the next action of a free rank if it can run now.
func (n *naive) step(rank int) bool {
	if result := n.results[rank]; result != nil {
		n.results[rank] = nil
		result()
		return true
	}
	if n.at[rank] == len(n.lists[rank]) {
		return false
	}
	i := n.at[rank]
	a, p := n.lists[rank][i], n.plan.Placement
	s, mb := a.Stage(), a.Microbatch()
	reached := n.free[rank]
	done := func(m *naiveMessage) bool {
		if m != nil {
			n.waits[rank] = append(n.waits[rank], naiveWait{reached, n.now, i, m})
		}
		n.events[rank] = append(n.events[rank], simulate.TimedAction{Rank: rank, Position: int64(i), Action: a, Start: reached, End: n.now})
		n.at[rank]++
		n.free[rank] = n.now
		return true
	}
	switch kind := a.Kind(); kind {
	case schedule.F, schedule.B, schedule.I, schedule.W:
		return n.compute(rank)
	case schedule.Quantize:
		if n.stage(s).Quantize > 0 {
			return n.compute(rank)
		}
	case schedule.SendF, schedule.SendB:
		key, link := [3]int{s, s + 1, mb}, [3]int{rank, 0, 0}
		if kind == schedule.SendB {
			key[1], link[2] = s-1, 1
		}
		if n.posts() {
			n.post(naiveEnd{0, key})
			return done(nil)
		}
		link[1] = p.Rank[key[1]]
		if n.capacity == 0 {
			return n.meet(rank, link[1], key)
		}
		outstanding := len(n.sent[link]) - n.taken[link]
		if n.capacity > 0 && outstanding >= n.capacity {
			return false
		}
		var freed *naiveMessage
		if n.capacity > 0 && len(n.sent[link]) >= n.capacity {
			freed = n.sent[link][len(n.sent[link])-n.capacity]
		}
		n.transmit(key, n.now)
		return done(freed)
	case schedule.RecvF, schedule.RecvB:
		key, dir := [3]int{s - 1, s, mb}, 0
		if kind == schedule.RecvB {
			key[0], dir = s+1, 1
		}
		if n.posts() {
			n.post(naiveEnd{1, key})
			return done(nil)
		}
		link := [3]int{p.Rank[key[0]], rank, dir}
		if n.capacity == 0 || len(n.sent[link]) == n.taken[link] {
			return false // with capacity 0, the sender calls meet
		}
		m := n.sent[link][n.taken[link]]
		if m.there > n.now {
			return false
		}
		if m.key != key {
			panic("the test's own plans receive in order")
		}
		m.received = n.now
		n.taken[link]++
		return done(m)
	case schedule.Offload, schedule.Reload:
		dir := 0
		if kind == schedule.Reload {
			dir = 1
		}
		lane := [2]int{rank, dir}
		wire := max(n.now, n.lanes[lane])
		n.lanes[lane] = wire + (n.away(s, mb)*n.costs.FarPerMiB+1<<20-1)/(1<<20)
		n.messages[[3]int{-1 - dir, s, mb}] = &naiveMessage{wire: wire, there: n.lanes[lane] + n.costs.FarLatency, lane: 1}
		done(nil)
		n.events[rank][i].Copied = simulate.Interval{Start: wire, End: n.lanes[lane]}
		return true
	case schedule.ReduceGrad, schedule.Unshard:
		lane, exchanges := 2, n.reduced
		if kind == schedule.Unshard {
			lane, exchanges = 3, n.gathered
		}
		wire := max(n.now, n.lanes[[2]int{rank, lane}])
		end := wire + (n.peers(kind, s)*n.costs.ReplicaPerMiB+1<<20-1)/(1<<20)
		n.lanes[[2]int{rank, lane}] = end
		exchanges[s] = &naiveMessage{wire: wire, there: end + n.apart(), lane: lane}
		done(nil)
		n.events[rank][i].Copied = simulate.Interval{Start: wire, End: end}
		return true
	case schedule.WaitReduce:
		m := n.reduced[s]
		if m.there > n.now {
			return false
		}
		return done(m)
	case schedule.WaitOffload:
		m := n.messages[[3]int{-1, s, mb}]
		if m.there > n.now {
			return false
		}
		return done(m)
	case schedule.WaitF, schedule.WaitB:
		key := [3]int{s, s + 1, mb}
		if kind == schedule.WaitB {
			key[1] = s - 1
		}
		m := n.messages[key]
		if m == nil || n.posts() && m.there > n.now || !n.posts() && (m.received < 0 || m.received > n.now) {
			return false
		}
		return done(m)
	}
	return done(nil)
}

// meet runs a send and its receive if both ranks have reached them.
func (n *naive) meet(rank, peer int, key [3]int) bool {
	if n.free[peer] > n.now || n.results[peer] != nil || n.at[peer] == len(n.lists[peer]) {
		return false
	}
	other := n.lists[peer][n.at[peer]]
	kind := schedule.RecvF
	if key[1] < key[0] {
		kind = schedule.RecvB
	}
	if other.Kind() != kind || other.Stage() != key[1] || other.Microbatch() != key[2] {
		return false
	}
	n.transmit(key, n.now)
	m := n.messages[key]
	m.received = m.there
	for _, r := range []int{rank, peer} {
		i := n.at[r]
		n.waits[r] = append(n.waits[r], naiveWait{n.free[r], m.there, i, m})
		n.events[r] = append(n.events[r], simulate.TimedAction{Rank: r, Position: int64(i), Action: n.lists[r][i], Start: n.free[r], End: m.there})
		n.at[r]++
		n.free[r] = m.there
	}
	return true
}

func (n *naive) compute(rank int) bool {
	i := n.at[rank]
	all := n.lists[rank][i : i+1]
	if all[0].Joined() {
		all = n.lists[rank][i : i+2]
	}
	reached := n.free[rank]
	var messages []*naiveMessage
	for _, a := range all {
		if key, remote := n.needs(a); remote {
			m := n.messages[key]
			if m == nil || m.there > n.now {
				return false
			}
			messages = append(messages, m)
		}
		if m := n.messages[[3]int{-2, a.Stage(), a.Microbatch()}]; m != nil && (a.Kind() == schedule.B || a.Kind() == schedule.I) {
			if m.there > n.now {
				return false
			}
			messages = append(messages, m)
		}
		if m := n.gathered[a.Stage()]; m != nil && a.Kind().Compute() {
			if m.there > n.now {
				return false
			}
			messages = append(messages, m)
		}
	}
	for _, a := range all {
		if a.Kind().Compute() {
			delete(n.gathered, a.Stage())
		}
	}
	for _, m := range messages {
		n.waits[rank] = append(n.waits[rank], naiveWait{reached, max(reached, m.there), i, m})
		reached = max(reached, m.there)
	}
	time, recompute := n.time(all[0])
	if len(all) == 2 {
		t, r := n.time(all[1])
		time, recompute = time+t, recompute+r
		for k, a := range all {
			if joined := n.stage(a.Stage()).Joined; joined != 0 && a.Kind() == schedule.F && all[1-k].Kind() != schedule.F {
				time = joined + recompute
			}
		}
	}
	end := n.now + time
	for k, a := range all {
		n.events[rank] = append(n.events[rank], simulate.TimedAction{Rank: rank, Position: int64(i + k), Action: a, Start: n.now, End: end})
	}
	n.at[rank] += len(all)
	n.free[rank] = end
	n.results[rank] = func() {
		for _, a := range all {
			to := a.Stage() - 1
			switch a.Kind() {
			case schedule.F:
				to = a.Stage() + 1
			case schedule.W, schedule.Quantize:
				continue
			}
			if !n.transfers && crosses(n.plan, a.Stage(), to) {
				n.transmit([3]int{a.Stage(), to, a.Microbatch()}, n.now)
			}
		}
	}
	return true
}

// report returns the report, without the critical path.
func (n *naive) report() *simulate.Report {
	report := &simulate.Report{Ranks: make([]simulate.RankReport, len(n.lists))}
	first, last := int64(-1), int64(0)
	for rank := range n.lists {
		r := &report.Ranks[rank]
		n.bytes(rank, r)
		started, finished := -1, -1
		var end, updated int64
		for _, a := range n.lists[rank] {
			switch a.Kind() {
			case schedule.Unshard:
				r.Unshards++
				r.GatheredBytes += n.peers(a.Kind(), a.Stage())
			case schedule.ReduceGrad:
				bytes := n.peers(a.Kind(), a.Stage())
				r.ReducedBytes += bytes
				r.Reducing += (bytes*n.costs.ReplicaPerMiB + 1<<20 - 1) / (1 << 20)
				end = n.reduced[a.Stage()].there
			}
		}
		for s, home := range n.plan.Placement.Rank {
			if home == rank && n.plan.Mode == schedule.Training && (n.costs.Shard == 1 || n.costs.Shard == 2) && (n.plan.Frozen == nil || !n.plan.Frozen[s]) {
				updated += n.peers(schedule.Unshard, s)
			}
		}
		for i, e := range n.events[rank] {
			if !e.Action.Kind().Compute() && (e.Action.Kind() != schedule.Quantize || n.stage(e.Action.Stage()).Quantize == 0) {
				continue
			}
			if started < 0 {
				started, r.First = i, e.Start
			}
			finished, r.Last = i, e.End
			if i == 0 || !n.events[rank][i-1].Action.Joined() {
				r.Busy += e.End - e.Start
			}
		}
		if started < 0 {
			continue
		}
		for _, w := range n.waits[rank] {
			if w.position > started && w.position <= finished && w.from >= r.First {
				switch w.message.lane {
				case 1:
					r.Copies += max(0, w.to-w.from)
				case 2:
					r.ReduceWait += w.to - w.from
				case 3:
					r.GatherWait += w.to - w.from
				}
				r.Communication += max(0, min(w.to, w.message.there)-max(w.from, w.message.wire))
			}
		}
		r.ReduceWait += max(0, end-r.Last)
		end = max(end, r.Last)
		if updated > 0 {
			r.GatheredBytes += updated
			end += (updated*n.costs.ReplicaPerMiB+1<<20-1)/(1<<20) + n.apart()
		}
		report.Step = max(report.Step, end)
		r.Wait = r.Last - r.First - r.Busy
		report.Ideal = max(report.Ideal, r.Busy)
		report.Span = max(report.Span, r.Last-r.First)
		if first < 0 || r.First < first {
			first = r.First
		}
		last = max(last, r.Last)
	}
	report.Makespan = last - max(first, 0)
	return report
}

// buffer identifies a live buffer by its class, stage and microbatch.
type buffer struct {
	class memory.Class
	what  string
	stage int
	mb    int
}

// bytes tracks every buffer of a rank.
func (n *naive) bytes(rank int, r *simulate.RankReport) {
	live := map[buffer]int64{}
	resident := int64(0)
	if n.costs.Resident != nil {
		resident = n.costs.Resident[rank]
	}
	for s, home := range n.plan.Placement.Rank {
		if home == rank {
			resident += n.held(s)
		}
	}
	far := map[[2]int]int64{}
	stored := func() (total int64) {
		for _, bytes := range far {
			total += bytes
		}
		return total
	}
	flying := map[[2]int]bool{}
	waited := map[schedule.Kind]map[int]bool{schedule.WaitF: {}, schedule.WaitB: {}}
	for _, a := range n.lists[rank] {
		if on := waited[a.Kind()]; on != nil {
			on[a.Stage()] = true
		}
	}
	kept := func(b buffer) bool { // until the end of the step
		message := b.class == memory.Transfer || b.what == "output" && crosses(n.plan, b.stage, b.stage+1) || b.what == "gradient" && crosses(n.plan, b.stage, b.stage-1)
		return message && n.transfers && n.plan.Runtime.Keeps()
	}
	for s, home := range n.plan.Placement.Rank {
		for mb := range n.plan.Microbatches {
			if in := (buffer{memory.Transfer, "input", s, mb}); home == rank && kept(in) && crosses(n.plan, s-1, s) {
				live[in] = n.stage(s-1, mb).Output
			}
			if in := (buffer{memory.Transfer, "gradient in", s, mb}); home == rank && kept(in) && crosses(n.plan, s+1, s) {
				live[in] = n.stage(s+1, mb).Gradient
			}
		}
	}
	sum := func() (classes memory.ByClass) {
		classes[memory.Resident] = resident
		for b, bytes := range live {
			classes[b.class] += bytes
		}
		return classes
	}
	peak := sum()
	r.Peak, r.Classes, r.PeakPosition = peak.Total(), peak, -1
	last := n.lastReads(rank)
	for i := 0; i < len(n.lists[rank]); i++ {
		group := n.lists[rank][i : i+1]
		if group[0].Joined() {
			group = n.lists[rank][i : i+2]
		}
		var dead []buffer
		var landed, taken [][2]int
		away := buffer{memory.Saved, "away", group[0].Stage(), group[0].Microbatch()}
		for k, a := range group {
			s, mb, p := a.Stage(), a.Microbatch(), n.plan.Placement
			c := n.stage(s, mb)
			born := func(class memory.Class, what string, stage int, bytes int64) {
				live[buffer{class, what, stage, mb}] = bytes
			}
			dies := func(class memory.Class, what string, stage int) {
				if b := (buffer{class, what, stage, mb}); !kept(b) {
					dead = append(dead, b)
				}
			}
			frozen := s < len(n.plan.Frozen) && n.plan.Frozen[s]
			before, behind := !p.First(s), !p.Last(s)
			switch a.Kind() {
			case schedule.F:
				flying[[2]int{s, mb}] = true
				born(memory.Saved, "freed by I", s, c.FreedByI)
				born(memory.Saved, "the rest", s, c.Saved-c.FreedByI)
				if !n.plan.HasBackward(s) {
					dies(memory.Saved, "freed by I", s)
					dies(memory.Saved, "the rest", s)
					landed = append(landed, [2]int{s, mb})
				}
				if behind {
					born(memory.Activation, "output", s, c.Output)
					if crosses(n.plan, s, s+1) && !n.transfers {
						dies(memory.Activation, "output", s)
					}
				}
				if before && p.Rank[s-1] == rank {
					dies(memory.Activation, "output", s-1)
				} else if before {
					if !n.transfers {
						born(memory.Transfer, "input", s, n.stage(s-1, mb).Output)
					}
					dies(memory.Transfer, "input", s)
				}
			case schedule.Offload:
				far[[2]int{s, mb}] = n.away(s, mb)
			case schedule.Reload:
				delete(live, away)
			case schedule.B, schedule.I:
				taken = append(taken, [2]int{s, mb})
				dies(memory.Saved, "freed by I", s)
				if a.Kind() == schedule.B || frozen {
					dies(memory.Saved, "the rest", s)
					landed = append(landed, [2]int{s, mb})
				} else {
					born(memory.Carry, "carry", s, c.Carry)
				}
				if before && n.plan.HasBackward(s-1) {
					born(memory.ActGrad, "gradient", s, c.Gradient)
					if crosses(n.plan, s, s-1) && !n.transfers {
						dies(memory.ActGrad, "gradient", s)
					}
				}
				if behind && p.Rank[s+1] == rank {
					dies(memory.ActGrad, "gradient", s+1)
				} else if behind {
					if !n.transfers {
						born(memory.Transfer, "gradient in", s, n.stage(s+1, mb).Gradient)
					}
					dies(memory.Transfer, "gradient in", s)
				}
			case schedule.W:
				dies(memory.Saved, "the rest", s)
				dies(memory.Carry, "carry", s)
				landed = append(landed, [2]int{s, mb})
			case schedule.Quantize:
				live[buffer{memory.FP8, "forward weights", s, -1}] = c.ForwardWeights
				if n.plan.HasBackward(s) {
					live[buffer{memory.FP8, "backward weights", s, -1}] = c.BackwardWeights
				}
			case schedule.Unshard:
				live[buffer{memory.Unsharded, "weights", s, -1}] = c.Weights
			case schedule.Reshard:
				dead = append(dead, buffer{memory.Unsharded, "weights", s, -1})
			case schedule.ZeroGrad:
				live[buffer{memory.Unsharded, "gradients", s, -1}] = c.Gradients
			case schedule.WaitReduce:
				whole := buffer{memory.Unsharded, "gradients", s, -1}
				if _, zeroed := live[whole]; zeroed {
					dead = append(dead, whole)
				}
			case schedule.RecvF:
				born(memory.Transfer, "input", s, n.stage(s-1, mb).Output)
			case schedule.RecvB:
				born(memory.Transfer, "gradient in", s, n.stage(s+1, mb).Gradient)
			case schedule.SendF:
				if !waited[schedule.WaitF][s] {
					dies(memory.Activation, "output", s)
				}
			case schedule.SendB:
				if !waited[schedule.WaitB][s] {
					dies(memory.ActGrad, "gradient", s)
				}
			case schedule.WaitF:
				dies(memory.Activation, "output", s)
			case schedule.WaitB:
				dies(memory.ActGrad, "gradient", s)
			}
			for _, what := range []string{"forward weights", "backward weights"} {
				if copies := (buffer{memory.FP8, what, s, -1}); last[copies] == i+k {
					if _, made := live[copies]; made {
						dead = append(dead, copies)
					}
				}
			}
		}
		r.FarPeak = max(r.FarPeak, stored())
		if a := group[0]; a.Kind() <= schedule.WaitReduce || a.Kind() == schedule.Quantize {
			if now := sum(); now.Total() > r.Peak || r.PeakPosition < 0 {
				r.Peak, r.Classes, r.PeakPosition, r.PeakAt = now.Total(), now, int64(i), a.WithDrop(0).WithJoin(false)
			}
			r.InFlight = max(r.InFlight, int64(len(flying)))
		}
		for _, b := range dead {
			if _, ok := live[b]; !ok {
				panic("a buffer dies that is not there")
			}
			delete(live, b)
		}
		for _, f := range landed {
			delete(flying, f)
		}
		for _, f := range taken {
			delete(far, f)
		}
		if group[0].Kind() == schedule.WaitOffload {
			live[away] = -n.away(away.stage, away.mb)
		}
		for k := range group {
			n.events[rank][i+k].Live, n.events[rank][i+k].Far = sum(), stored()
		}
		i += len(group) - 1
	}
	maps.DeleteFunc(live, func(b buffer, _ int64) bool { return kept(b) })
	if len(live)+len(far) > 0 {
		panic("a buffer never dies")
	}
}

// lastReads returns the positions of the last reads of the copies of weights on a rank.
func (n *naive) lastReads(rank int) map[buffer]int {
	last := map[buffer]int{}
	for i, a := range n.lists[rank] {
		s := a.Stage()
		again := n.plan.StageInfo != nil && n.plan.StageInfo[s].Recomputes || n.plan.StageInfo == nil && (n.stage(s).Recompute > 0 || n.stage(s).PerToken.Recompute > 0 || n.stage(s).PerSquare.Recompute > 0)
		backward := a.Kind() == schedule.B || a.Kind() == schedule.I
		if a.Kind() == schedule.F || backward && again {
			last[buffer{memory.FP8, "forward weights", s, -1}] = i
		}
		if backward {
			last[buffer{memory.FP8, "backward weights", s, -1}] = i
		}
	}
	return last
}

// drawCosts draws costs for a plan.
func drawCosts(t *rapid.T, p *schedule.Plan) *simulate.Costs {
	top := rapid.SampledFrom([]int64{1, 3, 50, 100_000}).Draw(t, "largest time")
	time := func(name string) int64 { return max(0, rapid.Int64Range(-top/4, top).Draw(t, name)) }
	bytes := func(name string) int64 { return rapid.Int64Range(0, 3).Draw(t, name) << 20 * 7 / 4 }
	c, bandwidth := &simulate.Costs{Latency: time("latency"), FarLatency: time("latency of far memory"), FarPerMiB: time("time of a MiB to far memory"),
		Replicas: rapid.IntRange(0, 4).Draw(t, "replicas"), Shard: rapid.IntRange(0, 3).Draw(t, "shard"), ReplicaLatency: time("latency of replicas"), ReplicaPerMiB: time("time of a MiB between replicas")}, rapid.IntRange(0, 2).Draw(t, "bandwidth") > 0
	if bandwidth {
		c.PerMiB = time("time of a MiB")
	}
	rates, given := rapid.Bool().Draw(t, "rates"), rapid.IntRange(0, 3).Draw(t, "lengths without rates") == 0
	stages := rapid.SampledFrom([]int{1, p.Placement.Depth(), p.Placement.Stages()}).Draw(t, "stages with costs")
	for range stages {
		s := simulate.StageCosts{F: time("F"), I: time("I"), W: time("W"), B: time("B"), Joined: time("joined"), Recompute: time("recompute"),
			Output: bytes("output"), Gradient: bytes("gradient"), Saved: bytes("saved"), Carry: bytes("carry"),
			Quantize: time("quantize"), ForwardWeights: bytes("forward weights"), BackwardWeights: bytes("backward weights"),
			Weights: bytes("weights"), Gradients: bytes("gradients"), Optimizer: bytes("optimizer")}
		s.FreedByI = rapid.Int64Range(0, s.Saved).Draw(t, "freed by I")
		s.Offloaded = rapid.Int64Range(0, s.Saved).Draw(t, "offloaded")
		if rates {
			s.Joined = 0
			rate := func(name string) float64 { return float64(rapid.IntRange(0, 9).Draw(t, name)) / 4 }
			for _, per := range []*simulate.Rates{&s.PerToken, &s.PerSquare} {
				*per = simulate.Rates{F: rate("F"), I: rate("I"), W: rate("W"), B: rate("B"), Recompute: rate("recompute"),
					Output: rate("output"), Gradient: rate("gradient"), Saved: rate("saved"), Carry: rate("carry")}
				per.FreedByI, per.Offloaded = per.Saved/4, per.Saved/2
			}
		}
		c.Stages = append(c.Stages, s)
	}
	for range p.Microbatches {
		if rates || given {
			c.Lengths = append(c.Lengths, lengths.Of(rapid.SliceOfN(rapid.IntRange(1, 40), 1, 3).Draw(t, "lengths")...))
		}
	}
	if rapid.Bool().Draw(t, "resident") {
		for range p.Placement.Ranks {
			c.Resident = append(c.Resident, bytes("resident"))
		}
	}
	for range rapid.IntRange(-3, 3).Draw(t, "links") {
		if from, to := rapid.IntRange(0, p.Placement.Ranks-1).Draw(t, "from"), rapid.IntRange(0, p.Placement.Ranks-1).Draw(t, "to"); from != to && bandwidth {
			c.Links = append(c.Links, simulate.LinkCosts{From: from, To: to, Latency: time("latency of link"), PerMiB: time("time of a MiB on link")})
		}
	}
	return c
}

// simulateNaively returns the result of the naive simulation of a plan.
func simulateNaively(plan *schedule.Plan, costs *simulate.Costs, capacity int) (*simulate.Report, [][]simulate.TimedAction, error) {
	n, err := runNaive(plan, costs, capacity)
	if err != nil {
		return nil, nil, err
	}
	return n.report(), n.events, nil
}
