package simulate

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// deed is what an action of one kind on one stage does and costs.
type deed struct {
	does   doing
	awaits int   // the mailbox in which must be what it waits for, -1 for none
	peer   int   // the rank that what it awaits comes from
	link   int   // the link on which it sends or receives, -1 for none
	sends  int   // the mailbox that it sends to, or puts its receipt into; -1 for none
	posts  int   // the mailbox of a transfer that is posted until the other end, in awaits, is
	offset int64 // from the key of the action to that of its parcel

	time      int64 // that the rank is taken
	recompute int64 // the part of it that is for recomputing
	joined    int64 // of a pair with this forward, without what the other recomputes; 0: the sum of the two
	wire      int64 // how long its message takes the link
}

// doing is how a deed is done.
type doing uint8

const (
	doNothing doing = iota // takes no time and waits for nothing
	doCompute
	doSend
	doReceive
	doAwait
	doPost // a send or a receive that the rank does not wait for
)

// route is a link between two ranks, in one direction of flow.
type route struct {
	from, to int
	latency  int64
	box      int // the mailbox of what is on its way, in a plan with transfers
	room     int // the mailbox of receipts that make room for more, -1 where there is no need
	// The mailboxes of sends and of receives that are posted, in PyTorch.
	sent, awaited int
}

// deed returns what the action does.
func (s *simulation) deed(a schedule.Action) *deed {
	if a.Kind() > schedule.WaitB {
		if a.Kind() == schedule.Quantize && s.copies != nil {
			return &s.copies[a.Stage()].making
		}
		return &s.idle
	}
	return &s.deeds[tableIndex(a.Stage(), a.Kind())]
}

// together returns the time of a joined pair.
func (s *simulation) together(a, b schedule.Action) int64 {
	first, second := s.deed(a), s.deed(b)
	if b.Kind() == schedule.F {
		first, second = second, first
	}
	if first.joined != 0 && a.Kind() != b.Kind() && s.costs.Each == nil {
		return first.joined + second.recompute
	}
	return s.alone(s.deed(a), a) + s.alone(s.deed(b), b)
}

// alone returns the time of a computation that overlaps with no other.
func (s *simulation) alone(d *deed, a schedule.Action) int64 {
	if s.costs.Each == nil || a.Kind() == schedule.Quantize {
		return d.time
	}
	a = a.WithDrop(0).WithJoin(false)
	time := s.costs.Each(a)
	if time < 0 || time > s.longest {
		if s.fault == nil {
			s.fault = fmt.Errorf("%w: the time of %v is %d: it must be 0 to %d", ErrCosts, a, time, s.longest)
		}
		return 0
	}
	return time
}

// prepare fills in the deeds and holdings, the routes and the mailboxes.
func (s *simulation) prepare() {
	p := s.plan.Placement
	s.idle = deed{awaits: -1, link: -1, sends: -1}
	s.deeds, s.holdings = make([]deed, p.Stages()*passes.KindsPerStage), make([]holding, p.Stages()*passes.KindsPerStage)
	for i := range s.deeds {
		s.deeds[i] = s.idle
	}
	for stage := range p.Stages() {
		s.computations(stage)
		s.hold(stage)
	}
	s.copyWeights()
	s.routes = make([]route, len(s.links.From))
	for link := range s.routes {
		s.route(link)
	}
	for i := range s.passages {
		passage := &s.passages[i]
		if !passage.crosses {
			continue
		}
		if !passage.waits {
			s.cross(passage)
		}
		link := s.links.Of[passage.edge]
		way := &s.routes[link]
		wire := s.costs.Link(way.from, way.to).transmission(passage.bytes)
		switch {
		case s.posts():
			s.post(passage, link, wire)
		case s.transfers:
			s.transfer(passage, link, wire)
		default:
			s.imply(passage, link, wire)
		}
	}
	s.ranks, s.free = make([]simRank, p.Ranks), make([]simLink, len(s.routes))
	for rank := range s.ranks {
		s.ranks[rank].Cursor = &s.Ranks[rank]
	}
	for i := range s.free {
		s.free[i].room = s.capacity
	}
}

// tableIndex returns the place of a kind on a stage in the tables.
func tableIndex(stage int, kind schedule.Kind) int { return stage*passes.KindsPerStage + int(kind) }

// computations fills in those of a stage.
func (s *simulation) computations(stage int) {
	costs := s.costs.Of(stage)
	recompute := costs.Recompute
	if s.plan.Facts != nil && !s.plan.Facts[stage].Recomputes {
		recompute = 0
	}
	set := func(kind schedule.Kind, time, recompute int64) *deed {
		d := &s.deeds[tableIndex(stage, kind)]
		d.does, d.time, d.recompute = doCompute, time+recompute, recompute
		return d
	}
	set(schedule.F, costs.F, 0).joined = costs.Joined
	set(schedule.B, costs.Backward(), recompute)
	set(schedule.I, costs.I, recompute)
	set(schedule.W, costs.W, 0)
}

// route fills in the mailboxes of a link.
func (s *simulation) route(link int) {
	r := route{from: s.links.From[link], to: s.links.To[link], box: -1, room: -1}
	r.latency = s.costs.Link(r.from, r.to).Latency
	switch {
	case s.posts():
		r.sent, r.awaited = s.mailbox(), s.mailbox()
	case s.transfers:
		r.box = s.mailbox()
		if s.capacity != schedule.Unlimited {
			r.room = s.mailbox()
		}
	}
	s.routes[link] = r
}

// imply fills in what passes between ranks in a plan without transfers: who makes it
// sends it, and who reads it waits for it.
func (s *simulation) imply(p *passage, link int, wire int64) {
	box := s.mailbox()
	for _, kind := range p.kinds {
		d := &s.deeds[tableIndex(p.from, kind)]
		d.link, d.sends, d.offset, d.wire = link, box, int64(p.to-p.from), wire
		d = &s.deeds[tableIndex(p.to, kind)]
		d.awaits, d.peer = box, s.routes[link].from
	}
}

// transfer fills in the transfers of what passes between ranks.
func (s *simulation) transfer(p *passage, link int, wire int64) {
	way, offset := &s.routes[link], int64(p.to-p.from)
	receipts := -1
	if p.waits {
		receipts = s.mailbox()
		s.deeds[tableIndex(p.from, p.wait)] = deed{does: doAwait, awaits: receipts, peer: way.to, link: -1, sends: -1, offset: offset}
	}
	s.deeds[tableIndex(p.from, p.send)] = deed{does: doSend, awaits: -1, link: link, sends: way.box, offset: offset, wire: wire}
	s.deeds[tableIndex(p.to, p.receive)] = deed{does: doReceive, awaits: way.box, peer: way.from, link: link, sends: receipts, wire: wire}
}

// posts reports whether the plan has transfers that no rank waits at.
func (s *simulation) posts() bool { return s.transfers && s.plan.Runtime == schedule.PyTorch }

// post fills in the transfers of what passes between ranks if ranks do not wait at them:
// who reads it waits for it.
func (s *simulation) post(p *passage, link int, wire int64) {
	box, way := s.mailbox(), s.routes[link]
	for _, kind := range p.kinds {
		d := &s.deeds[tableIndex(p.to, kind)]
		d.awaits, d.peer = box, way.from
	}
	s.deeds[tableIndex(p.from, p.send)] = deed{does: doPost, awaits: way.awaited, link: link, posts: way.sent, sends: box, offset: int64(p.to - p.from), wire: wire}
	s.deeds[tableIndex(p.to, p.receive)] = deed{does: doPost, awaits: way.sent, link: link, posts: way.awaited, sends: box, wire: wire}
}

// mailbox adds a mailbox.
func (s *simulation) mailbox() int {
	s.boxes = append(s.boxes, newMailbox())
	return len(s.boxes) - 1
}
