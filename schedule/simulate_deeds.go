package schedule

// deed is what an action of one kind on one stage does and costs.
type deed struct {
	does   doing
	awaits int   // the mailbox in which must be what it waits for, -1 for none
	peer   int   // the rank that what it awaits comes from
	link   int   // the link on which it sends or receives, -1 for none
	sends  int   // the mailbox that it sends to, or puts its receipt into; -1 for none
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
)

// route is a link between two ranks, in one direction of flow.
type route struct {
	from, to int
	latency  int64
	box      int // the mailbox of what is on its way, in a plan with transfers
	room     int // the mailbox of receipts that make room for more, -1 where there is no need
}

// deed returns what the action does.
func (s *simulation) deed(a Action) *deed {
	if a.Kind() > WaitB {
		return &s.idle
	}
	return &s.deeds[a.Stage()*kindsPerStage+int(a.Kind())]
}

// together returns the time of a joined pair.
func (s *simulation) together(a, b Action) int64 {
	first, second := s.deed(a), s.deed(b)
	if b.Kind() == F {
		first, second = second, first
	}
	if first.joined != 0 && a.Kind() != b.Kind() {
		return first.joined + second.recompute
	}
	return first.time + second.time
}

// prepare fills in the deeds, the routes and the mailboxes.
func (s *simulation) prepare() {
	s.idle = deed{awaits: -1, link: -1, sends: -1}
	stages := s.plan.Placement.Stages()
	s.deeds = make([]deed, stages*kindsPerStage)
	for i := range s.deeds {
		s.deeds[i] = s.idle
	}
	for stage := range stages {
		s.computations(stage)
	}
	routes := map[[3]int]int{}
	for stage := range stages {
		forward, back := s.crosses(stage)
		if forward {
			s.edge(routes, stage, stage+1, F)
		}
		if back {
			s.edge(routes, stage, stage-1, B)
		}
	}
	s.holdings = make([]holding, len(s.deeds))
	for stage := range stages {
		s.hold(stage)
	}
	s.ranks = make([]simRank, s.plan.Placement.Ranks)
	s.free = make([]simLink, len(s.routes))
	for i := range s.free {
		s.free[i].room = s.capacity
	}
}

// crosses reports whether the stage's output goes to another rank, and whether the
// gradient of its input does.
func (s *simulation) crosses(stage int) (forward, back bool) {
	p := s.plan.Placement
	forward = !p.Last(stage) && p.Rank[stage] != p.Rank[stage+1]
	back = !p.First(stage) && p.Rank[stage] != p.Rank[stage-1] && s.plan.HasBackward(stage-1)
	return forward, back
}

// computations fills in the computations of a stage, without what they send.
func (s *simulation) computations(stage int) {
	costs := s.costs.of(s.plan.Placement, stage)
	recompute := costs.Recompute
	if s.plan.Facts != nil && !s.plan.Facts[stage].Recomputes {
		recompute = 0
	}
	set := func(kind Kind, time, recompute int64) *deed {
		d := &s.deeds[stage*kindsPerStage+int(kind)]
		d.does, d.time, d.recompute = doCompute, time+recompute, recompute
		return d
	}
	set(F, costs.F, 0).joined = costs.Joined
	set(B, costs.backward(), recompute)
	set(I, costs.I, recompute)
	set(W, costs.W, 0)
}

// edge fills in what a stage sends to the next one, or to the one before. Kind is the
// computation whose result it is: F, or B for both backwards.
func (s *simulation) edge(routes map[[3]int]int, from, to int, kind Kind) {
	p, costs := s.plan.Placement, s.costs.of(s.plan.Placement, from)
	bytes, sends, receives, waits, results, readers := costs.Output, SendF, RecvF, WaitF, []Kind{F}, []Kind{F}
	if kind == B {
		bytes, sends, receives, waits = costs.Gradient, SendB, RecvB, WaitB
		results, readers = []Kind{B, I}, []Kind{B, I}
	}
	link := s.costs.link(p.Rank[from], p.Rank[to])
	key := [3]int{link.From, link.To, int(kind)}
	index, ok := routes[key]
	if !ok {
		index = len(s.routes)
		routes[key] = index
		r := route{from: link.From, to: link.To, latency: link.Latency, box: -1, room: -1}
		if s.transfers {
			r.box = s.mailbox()
			if s.capacity != Unlimited {
				r.room = s.mailbox()
			}
		}
		s.routes = append(s.routes, r)
	}
	wire := link.transmission(bytes)
	sender := deed{link: index, awaits: -1, offset: int64(to - from), wire: wire}
	receiver := deed{link: index, sends: -1, peer: link.From, wire: wire}
	at := func(stage int, kind Kind) *deed { return &s.deeds[stage*kindsPerStage+int(kind)] }
	if !s.transfers {
		box := s.mailbox()
		for _, kind := range results {
			d := at(from, kind)
			d.link, d.sends, d.offset, d.wire = index, box, sender.offset, wire
		}
		for _, kind := range readers {
			d := at(to, kind)
			d.awaits, d.peer = box, link.From
		}
		return
	}
	sender.does, sender.sends = doSend, s.routes[index].box
	receiver.does, receiver.awaits = doReceive, s.routes[index].box
	if s.waits[from]&(1<<waits) != 0 {
		receiver.sends = s.mailbox()
		*at(from, waits) = deed{does: doAwait, awaits: receiver.sends, peer: link.To, link: -1, sends: -1, offset: sender.offset}
	}
	*at(from, sends), *at(to, receives) = sender, receiver
}

// mailbox adds a mailbox.
func (s *simulation) mailbox() int {
	s.boxes = append(s.boxes, newMailbox())
	return len(s.boxes) - 1
}
