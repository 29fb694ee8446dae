package passes

import "github.com/weir-ml/weir/schedule"

// Queues contains the queues of the transfers of a PyTorch plan ([schedule.Queue]). A transfer begins when both of its
// ends are posted and are the first in their queues.
type Queues struct {
	Of   [][2]int // by edge: the queues of its sends and of its receives, or -1 for both if the edge has no link
	Rank []int    // by queue: the rank that posts its transfers
}

// NewQueues returns the queues of a plan with transfers. If the runtime has no queues, each end of a link has its own
// queue, so a transfer never waits for transfers on other links.
func NewQueues(o *Outline, l *Links) Queues {
	q := Queues{Of: make([][2]int, len(l.Of))}
	known := map[[3]int]int{}
	for edge, link := range l.Of {
		if link < 0 {
			q.Of[edge] = [2]int{-1, -1}
			continue
		}
		ends := [2]int{l.From[link], l.To[link]}
		for end, rank := range ends {
			key := [3]int{rank, 0, 0}
			switch o.Plan.Runtime.Queue() {
			case schedule.QueuePerPair:
				key[1] = ends[1-end]
			case schedule.QueuePerDirection:
				key[1] = edge % 2
			case schedule.QueuePerEdge, schedule.NoQueue:
				key[1], key[2] = ends[1-end], end
			}
			i, ok := known[key]
			if !ok {
				i = len(q.Rank)
				known[key] = i
				q.Rank = append(q.Rank, rank)
			}
			q.Of[edge][end] = i
		}
	}
	return q
}

// Programs returns, by queue, its transfers in the order of the rank's program.
func (q *Queues) Programs(o *Outline, l *Links) [][]schedule.Segment {
	return Split(o.Plan.Programs, len(q.Rank), func(a schedule.Action) int {
		if e := l.Crossing(Edge(a)); e >= 0 {
			return q.Of[e][end(a)]
		}
		return -1
	})
}

// end returns 0 for a send and 1 for a receive.
func end(a schedule.Action) int {
	if a.Kind() == schedule.RecvF || a.Kind() == schedule.RecvB {
		return 1
	}
	return 0
}

// QueueOf returns the queue of a transfer.
func (q *Queues) QueueOf(transfer schedule.Action) int { return q.Of[Edge(transfer)][end(transfer)] }

// OtherEnd returns the receive of a send, or the send of a receive.
func OtherEnd(transfer schedule.Action) schedule.Action {
	if end(transfer) == 0 {
		return ReceiptOf(transfer)
	}
	return Sent(Edge(transfer), int64(transfer.Microbatch()))
}

// Split returns n programs, each with the actions of all given programs for which part returns its index.
// Actions for which part returns -1 are left out, and so are drops and joins.
func Split(programs [][]schedule.Segment, n int, part func(a schedule.Action) int) [][]schedule.Segment {
	parts := make([][]schedule.Segment, n)
	last := make([][2]int, n) // by part: the numbers, from 1, of the last segment and body that contributed an action
	segments, bodies := 0, 0
	for _, program := range programs {
		for _, s := range program {
			segments++
			for _, inner := range s.Inside() {
				bodies++
				for _, a := range inner.Body {
					i := part(a)
					if i < 0 {
						continue
					}
					if last[i][0] != segments {
						parts[i] = append(parts[i], schedule.Segment{Repeat: s.Repeat, Stride: s.Stride})
					}
					segment := &parts[i][len(parts[i])-1]
					if s.Inner != nil {
						if last[i][1] != bodies {
							segment.Inner = append(segment.Inner, schedule.Segment{Repeat: inner.Repeat, Stride: inner.Stride})
						}
						segment = &segment.Inner[len(segment.Inner)-1]
					}
					last[i] = [2]int{segments, bodies}
					segment.Body = append(segment.Body, a.WithDrop(0).WithJoin(false))
				}
			}
		}
	}
	return parts
}
