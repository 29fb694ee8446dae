package passes

import "github.com/weir-ml/weir/schedule"

// Links contains the links between ranks. A link leads from one rank to another and delivers messages
// in order. It carries outputs or gradients, or both in PyTorch plans unless outputs and gradients have separate
// queues.
//
// An edge leaves a stage in one direction: edge 2s carries the outputs of stage s, and edge 2s+1
// carries the gradients that it sends back. Several edges may share a link.
type Links struct {
	Of       []int // by edge: its link, or -1 if the edge carries no messages to another rank
	From, To []int // by link: the ranks that send and receive
}

// NewLinks returns the links of a plan.
func NewLinks(o *Outline) Links {
	l := Links{Of: make([]int, 2*o.Stages)}
	known := map[[3]int]int{}
	for edge := range l.Of {
		l.Of[edge] = -1
		stage, peer := edge/2, Receiver(edge)
		if edge%2 == 0 && !o.Crosses(stage) || edge%2 == 1 && (!o.Crosses(peer) || !o.HasBackward(peer)) {
			continue
		}
		from, to := o.Plan.Placement.Rank[stage], o.Plan.Placement.Rank[peer]
		key := [3]int{from, to, edge % 2}
		if r := o.Plan.Runtime; r.Posts() && r.Queue() != schedule.QueuePerDirection {
			key[2] = 0
		}
		i, ok := known[key]
		if !ok {
			i = len(l.From)
			known[key] = i
			l.From, l.To = append(l.From, from), append(l.To, to)
		}
		l.Of[edge] = i
	}
	return l
}

// Edge returns the edge of a send or a receive, or -1 for any other action.
func Edge(a schedule.Action) int {
	switch stage := a.Stage(); a.Kind() {
	case schedule.SendF:
		return 2 * stage
	case schedule.RecvF:
		return 2 * (stage - 1)
	case schedule.SendB:
		return 2*stage + 1
	case schedule.RecvB:
		return 2*(stage+1) + 1
	}
	return -1
}

// Sent returns the send of a microbatch on an edge.
func Sent(edge int, mb int64) schedule.Action {
	return schedule.NewAction(schedule.SendF+schedule.Kind(edge%2)*(schedule.SendB-schedule.SendF), edge/2, 0).Shift(int(mb))
}

// Received returns the receive of a microbatch on an edge.
func Received(edge int, mb int64) schedule.Action {
	return schedule.NewAction(schedule.RecvF+schedule.Kind(edge%2)*(schedule.SendB-schedule.SendF), Receiver(edge), 0).Shift(int(mb))
}

// Receiver returns the stage to which an edge leads.
func Receiver(edge int) int {
	if edge%2 == 0 {
		return edge/2 + 1
	}
	return edge/2 - 1
}

// Takes returns the edge of the message that a computation reads, or -1 if it reads none.
func (l *Links) Takes(a schedule.Action) int {
	switch stage := a.Stage(); a.Kind() {
	case schedule.F:
		return l.Crossing(2 * (stage - 1))
	case schedule.B, schedule.I:
		return l.Crossing(2*(stage+1) + 1)
	}
	return -1
}

// Makes returns the edge of the message that a computation produces, or -1 if it produces none.
func (l *Links) Makes(a schedule.Action) int {
	switch stage := a.Stage(); a.Kind() {
	case schedule.F:
		return l.Crossing(2 * stage)
	case schedule.B, schedule.I:
		return l.Crossing(2*stage + 1)
	}
	return -1
}

// Crossing returns the edge if it has a link, or -1.
func (l *Links) Crossing(edge int) int {
	if edge < 0 || edge >= len(l.Of) || l.Of[edge] < 0 {
		return -1
	}
	return edge
}

// ReceiptOf returns the receive of a send.
func ReceiptOf(send schedule.Action) schedule.Action {
	return Received(Edge(send), int64(send.Microbatch()))
}

// WaitFor returns the wait for a send.
func WaitFor(send schedule.Action) schedule.Action {
	kind := schedule.WaitF
	if send.Kind() == schedule.SendB {
		kind = schedule.WaitB
	}
	return schedule.NewAction(kind, send.Stage(), send.Microbatch())
}
