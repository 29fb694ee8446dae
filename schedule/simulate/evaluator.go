package simulate

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
)

// Evaluator computes the makespan and the peaks of one plan again and again, for microbatches of
// different sizes. It is for searches: the order in which actions can run is found once, and then each
// result takes a few nanoseconds for each action. The results are those of [Run].
//
// The zero value is not usable. An Evaluator must not be used by several goroutines at the same time.
type Evaluator struct {
	plan   *schedule.Plan
	costs  *Costs
	quotas []quota // the amounts that depend on a microbatch, grouped by stage
	values []int64 // by quota and microbatch
	steps  []step  // of all ranks, each after those that it waits for
	wires  []int64 // by link: its latency

	changes  [][]change // by rank
	resident []int64    // by rank

	clocks, ready, free []int64 // by rank; by parcel; by link: the time at which it is free
}

// quota is the time of a computation, the time of a message on its link, or the size of a buffer.
type quota struct {
	stage  int // index of Costs.Stages
	kind   schedule.Kind
	again  bool     // the computation includes recomputation
	bytes  quantity // of a message or a buffer
	perMiB int64    // of a link
}

// of returns the amount of a microbatch with the given costs.
func (q *quota) of(at *StageCosts) int64 {
	switch {
	case q.perMiB != 0:
		return LinkCosts{PerMiB: q.perMiB}.transmission(q.bytes.of(at))
	case q.bytes != nothing:
		return q.bytes.of(at)
	case q.again:
		return timeOf(q.kind, at) + at.Recompute
	}
	return timeOf(q.kind, at)
}

// step is an action of a rank, or several in a row: waits for parcels, a computation, and a message. Parcel 0 is no
// parcel, and values[0] is 0.
type step struct {
	rank    int32
	awaits  [2]int32 // the parcels that the step waits for at its start
	receipt int32    // the parcel of a receipt, which is ready at the start
	time    int32    // the index in values of the time of the computation
	room    int32    // the receipt that makes room for the message
	link    int32    // of the message; -1 if there is none
	wire    int32    // the index in values of the time on the link
	parcel  int32    // the message
}

// join adds the next step of the rank to this one if that changes no time. It reports whether it has done so.
func (s *step) join(next *step) bool {
	switch {
	case s.rank != next.rank || s.link >= 0:
		return false
	case next.awaits[0] == 0 && next.receipt == 0 && next.time == 0: // a send
		s.room, s.link, s.wire, s.parcel = next.room, next.link, next.wire, next.parcel
	case s.time != 0 || s.receipt != 0 && next.awaits[0] != 0 || s.awaits[1] != 0 && next.awaits[0] != 0:
		return false
	default:
		if next.awaits[0] != 0 {
			s.awaits[1], s.receipt = s.awaits[0], next.receipt
			s.awaits[0] = next.awaits[0]
		}
		s.time, s.room, s.link, s.wire, s.parcel = next.time, next.room, next.link, next.wire, next.parcel
	}
	return true
}

// change is a buffer that an action allocates or frees.
type change struct {
	value     int32
	allocates bool
	last      bool // it is the last buffer that the action allocates
}

// NewEvaluator returns an evaluator for a plan. It refuses plans whose actions do more than compute and
// transfer, joined pairs, PyTorch plans with transfers, and transfers over links of capacity 0, with an error
// that wraps [schedule.ErrParams]; it refuses costs with Each. It ignores the costs' Lengths.
func NewEvaluator(plan *schedule.Plan, costs *Costs, capacity int) (*Evaluator, error) {
	refused := func(what string) (*Evaluator, error) {
		return nil, diagnostic.Errorf(schedule.ErrParams, "%q has %s: take another schedule, or simulate one order of it with Run", plan.Name, what)
	}
	for kind, has := range plan.Kinds() {
		if k := schedule.Kind(kind); has && !k.Compute() && (k < schedule.SendF || k > schedule.WaitB) {
			return refused(k.String())
		}
	}
	if costs.Each != nil {
		return nil, diagnostic.Errorf(ErrCosts, "an evaluator takes times from the sizes of microbatches, but Each gives them: leave out Each, or simulate one order with Run")
	}
	own := *costs
	own.Lengths = nil
	alike := own.AtSize(lengths.Of(1))
	var order []TimedAction
	if _, err := Timeline(plan, alike, capacity, func(e TimedAction) { order = append(order, e) }); err != nil {
		return nil, err
	}
	s, err := newSimulation(plan, alike, capacity, 0)
	switch {
	case err != nil:
		return nil, err
	case s.posts():
		return refused("transfers of PyTorch")
	case s.transfers && capacity == 0:
		return refused("links of capacity 0")
	case slices.ContainsFunc(order, func(e TimedAction) bool { return e.Action.Joined() }):
		return refused("joined pairs")
	}
	e := &Evaluator{plan: plan, costs: &own, clocks: make([]int64, len(s.ranks)), changes: make([][]change, len(s.ranks))}
	e.quotas = []quota{{stage: -1}} // of value 0
	for link := range s.routes {
		e.wires = append(e.wires, s.routes[link].latency)
	}
	for rank := range s.ranks {
		e.resident = append(e.resident, own.ResidentOf(plan.Placement, rank))
	}
	b := builder{Evaluator: e, s: s, parcels: map[overtakenKey]int32{}, quotasOf: map[quota]int32{}, sent: make([][]int32, len(s.routes))}
	for _, event := range order {
		b.add(event.Rank, event.Action)
	}
	e.ready, e.free = make([]int64, b.last+1), make([]int64, len(s.routes))
	b.sort()
	e.values = make([]int64, len(e.quotas)*plan.Microbatches)
	return e, nil
}

// builder adds actions to an evaluator.
type builder struct {
	*Evaluator
	s        *simulation
	parcels  map[overtakenKey]int32
	quotasOf map[quota]int32
	sent     [][]int32 // by link: the receipts of its messages, in order
	last     int32     // the last parcel
}

// parcel returns the number of a parcel in a mailbox.
func (b *builder) parcel(box int, key int64) int32 {
	at := overtakenKey{box, key}
	if b.parcels[at] == 0 {
		b.last++
		b.parcels[at] = b.last
	}
	return b.parcels[at]
}

// value returns the index in values of the amount of a microbatch: the index of its quota times the number of
// microbatches, plus the microbatch.
func (b *builder) value(q quota, microbatch int) int32 {
	if b.quotasOf[q] == 0 {
		b.quotasOf[q] = int32(len(b.quotas))
		b.quotas = append(b.quotas, q)
	}
	return b.quotasOf[q]*int32(b.plan.Microbatches) + int32(microbatch)
}

// add adds an action of a rank.
func (b *builder) add(rank int, a schedule.Action) {
	s, d, mb, key := b.s, b.s.costOf(a), a.Microbatch(), keyOf(a)
	index := func(stage int) int { return stage % len(b.costs.Stages) }
	one := step{rank: int32(rank), link: -1}
	switch d.op {
	case opCompute:
		one.time = b.value(quota{stage: index(a.Stage()), kind: a.Kind(), again: a.Kind() != schedule.F && a.Kind() != schedule.W && s.recomputes(a.Stage())}, mb)
		if d.awaitBox != 0 {
			one.awaits[0] = b.parcel(d.awaitBox, key)
		}
	case opSend:
		sent := &b.sent[d.link]
		if s.capacity != schedule.Unlimited && len(*sent) >= s.capacity {
			one.room = (*sent)[len(*sent)-s.capacity]
		}
		*sent = append(*sent, b.parcel(-1-d.link, key+d.offset))
	case opReceive:
		one.awaits[0], one.receipt = b.parcel(d.awaitBox, key), b.parcel(-1-d.link, key)
	case opAwait: // for the receipt of a message
		send := schedule.SendF
		if a.Kind() == schedule.WaitB {
			send = schedule.SendB
		}
		one.awaits[0] = b.parcel(-1-s.actionCosts[tableIndex(a.Stage(), send)].link, key+d.offset)
	}
	if d.op != opReceive && d.sendBox != 0 {
		one.link, one.parcel = int32(d.link), b.parcel(d.sendBox, key+d.offset)
		if d.wire.perMiB != 0 {
			one.wire = b.value(quota{stage: index(int(d.wire.stage)), bytes: d.wire.bytes, perMiB: d.wire.perMiB}, mb)
		}
	}
	if n := len(b.steps); d.op != opNone && (n == 0 || !b.steps[n-1].join(&one)) {
		b.steps = append(b.steps, one)
	}
	first := len(b.changes[rank])
	for _, allocates := range []bool{true, false} {
		s.eachBuffer(a.Stage(), a.Kind(), func(buffer buffer, allocated bool) {
			if buffer.size != nothing && allocated == allocates {
				value := b.value(quota{stage: index(buffer.stage), bytes: buffer.size}, mb)
				b.changes[rank] = append(b.changes[rank], change{value: value, allocates: allocates})
			}
		})
		if n := len(b.changes[rank]); allocates && n > first {
			b.changes[rank][n-1].last = true
		}
	}
}

// sort groups the quotas by stage.
func (b *builder) sort() {
	order := make([]int, len(b.quotas))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order[1:], func(i, j int) int { return b.quotas[i].stage - b.quotas[j].stage })
	sorted, moved, n := make([]quota, len(order)), make([]int32, len(order)), int32(b.plan.Microbatches)
	for to, from := range order {
		sorted[to], moved[from] = b.quotas[from], int32(to)
	}
	b.quotas = sorted
	move := func(value *int32) { *value = moved[*value/n]*n + *value%n }
	for i := range b.steps {
		move(&b.steps[i].time)
		move(&b.steps[i].wire)
	}
	for rank := range b.changes {
		for i := range b.changes[rank] {
			move(&b.changes[rank][i].value)
		}
	}
}

// Set sets the size of a microbatch of the plan. Before the first result, every microbatch needs a size.
func (e *Evaluator) Set(microbatch int, size lengths.Size) {
	stage, n := -1, e.plan.Microbatches
	var at StageCosts
	for i := range e.quotas[1:] {
		q := &e.quotas[i+1]
		if q.stage != stage {
			stage, at = q.stage, e.costs.Stages[q.stage].At(size)
		}
		e.values[(i+1)*n+microbatch] = q.of(&at)
	}
}

// Swap exchanges the sizes of two microbatches.
func (e *Evaluator) Swap(a, b int) {
	for row := range slices.Chunk(e.values, e.plan.Microbatches) {
		row[a], row[b] = row[b], row[a]
	}
}

// Makespan returns the makespan in ticks.
func (e *Evaluator) Makespan() (makespan int64) {
	clear(e.clocks)
	clear(e.free)
	values, ready := e.values, e.ready
	for i := range e.steps {
		s := &e.steps[i]
		t := max(e.clocks[s.rank], ready[s.awaits[0]], ready[s.awaits[1]])
		ready[s.receipt] = t
		if s.time != 0 {
			t += values[s.time]
			makespan = max(makespan, t)
		}
		if s.link >= 0 {
			t = max(t, ready[s.room])
			e.free[s.link] = max(t, e.free[s.link]) + values[s.wire]
			ready[s.parcel] = e.free[s.link] + e.wires[s.link]
		}
		e.clocks[s.rank] = t
		ready[0] = 0
	}
	return makespan
}

// Busy returns the time that a rank spends in computations.
func (e *Evaluator) Busy(rank int) (busy int64) {
	for i := range e.steps {
		if s := &e.steps[i]; int(s.rank) == rank {
			busy += e.values[s.time]
		}
	}
	return busy
}

// Peak returns the peak of the live bytes of a rank.
func (e *Evaluator) Peak(rank int) int64 {
	live := e.resident[rank]
	peak := live
	for _, c := range e.changes[rank] {
		if !c.allocates {
			live -= e.values[c.value]
			continue
		}
		if live += e.values[c.value]; c.last {
			peak = max(peak, live)
		}
	}
	return peak
}
