package simulate

import (
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// actionCost describes how the simulation runs an action of one kind on one stage. Mailbox 0 means no
// mailbox.
type actionCost struct {
	op         operation
	awaitBox   int    // the mailbox of the parcel that the action waits for
	waitsFor   int    // the kind of the wait for this parcel
	reloadBox  int    // the mailbox of copies from far memory, one of which may be the state that the action takes
	gatherBox  int    // the mailbox of gathered weights
	link       int    // the link on which the action sends or receives, or the lane of its copy or exchange
	sendBox    int    // the mailbox for the action's message or receipt
	postBox    int    // the queue for the posted transfer; for a send, awaitBox is the queue of its receive
	queues     [2]int // of a posted transfer: the queues of its send and of its receive
	end        int64  // of a posted transfer: twice the index of the send in actionCosts, plus 1 for the receive
	receiptBox int    // the mailbox for a copy of the message's parcel, which the sender's wait takes
	offset     int64  // the key of the action's parcel minus the key of the action

	time      int64 // the time for which the action occupies the rank
	recompute int64 // the part of time spent on recomputation
	joined    int64 // the time of a pair with this forward, without recomputation; 0 means the sum of both times
	wire      wire  // the time for which the action's message occupies the link
}

// wire is the time for which a message occupies a link. If microbatches have different costs, the time
// is computed for each message.
type wire struct {
	time   int64
	perMiB int64
	stage  int32
	bytes  quantity // of the stage
}

// operation selects the code that runs an action.
type operation uint8

const (
	opNone operation = iota // takes no time and waits for nothing
	opCompute
	opSend
	opReceive
	opAwait
	opPost // a send or a receive at which the rank does not wait
	opCopy // a copy to or from far memory, or an exchange between replicas
)

// route is a link from one rank to another, or a lane for copies or exchanges of one rank.
type route struct {
	from, to int
	latency  int64
	messages int // the mailbox of messages in flight, in a plan with transfers
	receipts int // the mailbox of receipts, each of which frees a slot; 0 if nothing limits the messages in flight
}

// costOf returns the cost of an action.
func (s *simulation) costOf(a schedule.Action) *actionCost {
	return &s.actionCosts[tableIndex(a.Stage(), a.Kind())]
}

// pairTime returns the time of a joined pair.
func (s *simulation) pairTime(a, b schedule.Action) int64 {
	first, second := s.costOf(a), s.costOf(b)
	if b.Kind() == schedule.F {
		first, second = second, first
	}
	if first.joined != 0 && a.Kind() != b.Kind() && s.costs.Each == nil {
		return first.joined + second.recompute
	}
	return s.timeOf(s.costOf(a), a) + s.timeOf(s.costOf(b), b)
}

// timeOf returns the time of a computation that is not joined.
func (s *simulation) timeOf(d *actionCost, a schedule.Action) int64 {
	if s.costs.Each == nil && s.sizes == nil || a.Kind() == schedule.Quantize {
		return d.time
	}
	if s.costs.Each == nil {
		at := s.costs.Of(a.Stage()).At(s.sizes[a.Microbatch()])
		time, _ := s.computation(a.Stage(), a.Kind(), &at)
		return time
	}
	a = a.WithDrop(0).WithJoin(false)
	time := s.costs.Each(a)
	if time < 0 || time > s.maxTime {
		if s.fault == nil {
			s.fault = diagnostic.Errorf(ErrCosts, "the time of %v is %d: it must be 0 to %d", a, time, s.maxTime)
		}
		return 0
	}
	return time
}

// prepare initializes the tables that are indexed by stage and kind, the routes and the mailboxes.
func (s *simulation) prepare() {
	p := s.plan.Placement
	s.actionCosts, s.holdings = make([]actionCost, p.Stages()*schedule.NumKinds), make([]holding, p.Stages()*schedule.NumKinds)
	s.crossings, s.kept = make([][]crossing, len(s.holdings)), make([][]buffer, p.Ranks)
	s.mailbox() // mailbox 0 means no mailbox
	for stage := range p.Stages() {
		s.computations(stage)
	}
	s.routes = make([]route, len(s.links.From))
	for link := range s.routes {
		s.newRoute(link)
	}
	var queues passes.Queues
	var queueBoxes []int // by queue: the mailbox of its posted transfers
	if s.posts() {
		queues = passes.NewQueues(s.outline, &s.links)
		for range queues.Rank {
			queueBoxes = append(queueBoxes, s.mailbox())
		}
	}
	for i := range s.passages {
		passage := &s.passages[i]
		if !passage.crosses {
			continue
		}
		s.crossBuffers(passage)
		link := s.links.Of[passage.edge]
		route := &s.routes[link]
		wire := s.wireTime(s.costs.Link(route.from, route.to).PerMiB, passage.carries, passage.from)
		switch {
		case s.posts():
			s.postedTransfer(passage, link, wire, queues.Of[passage.edge], queueBoxes)
		case s.transfers:
			s.transfer(passage, link, wire)
		default:
			s.implyTransfer(passage, link, wire)
		}
	}
	if s.sizes == nil {
		for stage := range p.Stages() {
			s.setHoldings(stage)
		}
	}
	s.prepareCopies()
	if s.outline.Offloads {
		s.offloads()
	}
	s.replicate()
	s.ranks, s.linkStates = make([]simRank, p.Ranks), make([]simLink, len(s.routes)+len(queues.Rank))
	for rank := range s.ranks {
		s.ranks[rank].cursor, s.ranks[rank].rank = &s.machine.Ranks[rank], rank
	}
	for i := range s.linkStates {
		s.linkStates[i].slots = s.capacity
	}
}

// tableIndex returns the index of a stage and kind in the tables.
func tableIndex(stage int, kind schedule.Kind) int { return stage*schedule.NumKinds + int(kind) }

// computations sets the costs of the computations of a stage.
func (s *simulation) computations(stage int) {
	costs := s.costs.Of(stage)
	for _, kind := range [...]schedule.Kind{schedule.F, schedule.B, schedule.I, schedule.W} {
		d := &s.actionCosts[tableIndex(stage, kind)]
		d.op = opCompute
		d.time, d.recompute = s.computation(stage, kind, costs)
	}
	s.actionCosts[tableIndex(stage, schedule.F)].joined = costs.Joined
}

// computation returns the time of a computation, and the part of it that is spent on recomputation.
func (s *simulation) computation(stage int, kind schedule.Kind, costs *StageCosts) (time, recompute int64) {
	if kind != schedule.F && kind != schedule.W && s.recomputes(stage) {
		recompute = costs.Recompute
	}
	return timeOf(kind, costs) + recompute, recompute
}

// recomputes reports whether the backward of a stage includes recomputation. It assumes so if the plan has
// no StageInfo.
func (s *simulation) recomputes(stage int) bool {
	return s.plan.StageInfo == nil || s.plan.StageInfo[stage].Recomputes
}

// timeOf returns the time of a computation without recomputation.
func timeOf(kind schedule.Kind, costs *StageCosts) int64 {
	switch kind {
	case schedule.F:
		return costs.F
	case schedule.I:
		return costs.I
	case schedule.W:
		return costs.W
	}
	return costs.Backward()
}

// wireTime returns the time for which messages of a stage occupy a link.
func (s *simulation) wireTime(perMiB int64, bytes quantity, stage int) wire {
	w := wire{perMiB: perMiB, bytes: bytes, stage: int32(stage)}
	if s.sizes == nil {
		w.time = LinkCosts{PerMiB: perMiB}.transmission(s.bytes(bytes, stage, 0))
	}
	return w
}

// wireOf returns the time for which the message with the key occupies its link.
func (s *simulation) wireOf(d *actionCost, key int64) int64 {
	if s.sizes == nil || d.wire.perMiB == 0 {
		return d.wire.time
	}
	return s.unequalWire(d, key)
}

// unequalWire is wireOf for microbatches with different costs.
func (s *simulation) unequalWire(d *actionCost, key int64) int64 {
	microbatch := schedule.Action(key << schedule.StageShift).Microbatch()
	return LinkCosts{PerMiB: d.wire.perMiB}.transmission(s.bytes(d.wire.bytes, int(d.wire.stage), microbatch))
}

// newRoute initializes the route of a link.
func (s *simulation) newRoute(link int) {
	r := route{from: s.links.From[link], to: s.links.To[link]}
	r.latency = s.costs.Link(r.from, r.to).Latency
	switch {
	case s.posts():
	case s.transfers:
		r.messages = s.mailbox()
		if s.capacity != schedule.Unlimited {
			r.receipts = s.mailbox()
		}
	}
	s.routes[link] = r
}

// implyTransfer sets the costs of a message in a plan without transfers: the computation that produces the
// message sends it, and the computation that reads the message waits for it.
func (s *simulation) implyTransfer(p *passage, link int, wire wire) {
	box := s.mailbox()
	for _, kind := range p.kinds {
		d := &s.actionCosts[tableIndex(p.from, kind)]
		d.link, d.sendBox, d.offset, d.wire = link, box, int64(p.to-p.from), wire
		d = &s.actionCosts[tableIndex(p.to, kind)]
		d.awaitBox = box
	}
}

// transfer sets the costs of the sends, receives and waits of a message.
func (s *simulation) transfer(p *passage, link int, wire wire) {
	route, offset := &s.routes[link], int64(p.to-p.from)
	receipts := 0
	if p.waits {
		receipts = s.mailbox()
		s.actionCosts[tableIndex(p.from, p.wait)] = actionCost{op: opAwait, awaitBox: receipts, offset: offset}
	}
	s.actionCosts[tableIndex(p.from, p.send)] = actionCost{op: opSend, link: link, sendBox: route.messages, offset: offset, wire: wire}
	s.actionCosts[tableIndex(p.to, p.receive)] = actionCost{op: opReceive, awaitBox: route.messages, link: link, sendBox: receipts, wire: wire}
}

// posts reports whether the plan has transfers and no rank waits at them.
func (s *simulation) posts() bool { return s.transfers && s.plan.Runtime.Posts() }

// postedTransfer sets the costs of the transfers of a message if ranks do not wait at transfers: the
// computation that reads the message waits for it, and so does the sender's wait, if the plan has one.
func (s *simulation) postedTransfer(p *passage, link int, wire wire, queues [2]int, boxes []int) {
	box := s.mailbox()
	for _, kind := range p.kinds {
		s.actionCosts[tableIndex(p.to, kind)].awaitBox = box
	}
	offset, receipts := int64(p.to-p.from), 0
	if p.waits {
		receipts = s.mailbox()
		s.actionCosts[tableIndex(p.from, p.wait)] = actionCost{op: opAwait, awaitBox: receipts, offset: offset}
	}
	send := tableIndex(p.from, p.send)
	d := actionCost{op: opPost, link: link, queues: queues, postBox: boxes[queues[0]], awaitBox: boxes[queues[1]], sendBox: box, receiptBox: receipts, offset: offset, wire: wire, end: 2 * int64(send)}
	s.actionCosts[send] = d
	d.postBox, d.offset, d.end = d.awaitBox, 0, d.end+1
	s.actionCosts[tableIndex(p.to, p.receive)] = d
}

// mailbox adds a mailbox and returns its index.
func (s *simulation) mailbox() int {
	s.boxes = append(s.boxes, newMailbox())
	return len(s.boxes) - 1
}
