package schedule

// links are the ways between ranks. Each goes from one rank to another in one
// direction, forward or backward, and is first in, first out.
//
// An edge is the way out of a stage in one direction: edge 2s is that of its outputs,
// edge 2s+1 that of the gradients that it sends back. Several edges may share a link.
type links struct {
	of       []int // by edge: its link; -1 where nothing goes
	from, to []int // by link: its ranks
}

func newLinks(o *outline) links {
	l := links{of: make([]int, 2*o.stages)}
	known := map[[3]int]int{}
	for edge := range l.of {
		l.of[edge] = -1
		stage, peer := edge/2, receiver(edge)
		if edge%2 == 0 && !o.crosses(stage) || edge%2 == 1 && (!o.crosses(peer) || !o.hasBackward(peer)) {
			continue
		}
		from, to := o.plan.Placement.Rank[stage], o.plan.Placement.Rank[peer]
		key := [3]int{from, to, edge % 2}
		i, ok := known[key]
		if !ok {
			i = len(l.from)
			known[key] = i
			l.from, l.to = append(l.from, from), append(l.to, to)
		}
		l.of[edge] = i
	}
	return l
}

// edge returns the edge of a send or a receive, -1 for any other action.
func edge(a Action) int {
	switch stage := a.Stage(); a.Kind() {
	case SendF:
		return 2 * stage
	case RecvF:
		return 2 * (stage - 1)
	case SendB:
		return 2*stage + 1
	case RecvB:
		return 2*(stage+1) + 1
	}
	return -1
}

// sent returns the send of a microbatch on an edge, and received its receive.
func sent(edge int, mb int64) Action {
	return Act(SendF+Kind(edge%2)*(SendB-SendF), edge/2, 0).Shift(int(mb))
}

func received(edge int, mb int64) Action {
	return Act(RecvF+Kind(edge%2)*(SendB-SendF), receiver(edge), 0).Shift(int(mb))
}

// receiver returns the stage that an edge leads to.
func receiver(edge int) int {
	if edge%2 == 0 {
		return edge/2 + 1
	}
	return edge/2 - 1
}

// takes returns the edge on which a computation's message comes, and makes that on which
// its own goes, -1 where there is none.
func (l *links) takes(a Action) int {
	switch stage := a.Stage(); a.Kind() {
	case F:
		return l.crossing(2 * (stage - 1))
	case B, I:
		return l.crossing(2*(stage+1) + 1)
	}
	return -1
}

func (l *links) makes(a Action) int {
	switch stage := a.Stage(); a.Kind() {
	case F:
		return l.crossing(2 * stage)
	case B, I:
		return l.crossing(2*stage + 1)
	}
	return -1
}

// crossing returns an edge if it is on a link, -1 otherwise.
func (l *links) crossing(edge int) int {
	if edge < 0 || edge >= len(l.of) || l.of[edge] < 0 {
		return -1
	}
	return edge
}

// receiptOf returns the receive of a send, waitFor the wait for it.
func receiptOf(send Action) Action { return received(edge(send), int64(send.Microbatch())) }

func waitFor(send Action) Action {
	kind := WaitF
	if send.Kind() == SendB {
		kind = WaitB
	}
	return Act(kind, send.Stage(), send.Microbatch())
}
