package passes

import (
	"iter"

	"github.com/weir-ml/weir/schedule"
)

// Queue is a first-in, first-out list of actions. Every action passes through the sections in order,
// so each section holds older actions than the sections before it. A Queue stores ranges of ascending
// or descending microbatches, so a million messages of one stage need no more space than two. In a
// period, the ends of the ranges shift with the microbatches, like the edges of a set.
type Queue struct {
	N [numSections]int32 // by section: the number of its actions

	items []stretch
	first int32 // in items: the item of the oldest action
	next  int32 // in items: the item of the last action that was taken, or of the action after it
	taken int32 // the number of actions of this item that were taken
}

// Section is a section of a Queue.
type Section int

// The sections of the sends on a link.
const (
	Fresh    Section = iota // sent since the receiver began its current computation
	Arrived                 // sent earlier than that, but not yet received
	Taken                   // received for a computation that has not ended
	Finished                // received for a computation that has ended
	Due                     // the sender has since begun a computation, and must wait for the send before its next one
	numSections
)

// stretch is a range of N actions whose microbatches differ by Step.
type stretch struct {
	Head    schedule.Action
	N, Step int // Step is 1, -1, or 0 if N is 1
}

// at returns the i-th action.
func (s *stretch) at(i int) schedule.Action { return s.Head.Shift(i * s.Step) }

// Push adds an action to the first section.
func (q *Queue) Push(a schedule.Action) {
	q.N[Fresh]++
	q.append(stretch{Head: a, N: 1})
}

// append adds a range behind the last one, and merges the two if the result is a single range.
func (q *Queue) append(s stretch) {
	if len(q.items) > int(q.first) {
		last := &q.items[len(q.items)-1]
		end := last.at(last.N - 1)
		step := s.Head.Microbatch() - end.Microbatch()
		if (step == 1 || step == -1) && s.Head == end.Shift(step) && (last.N == 1 || last.Step == step) && (s.N == 1 || s.Step == step) {
			last.N, last.Step = last.N+s.N, step
			return
		}
	}
	if q.first > 0 && len(q.items) == cap(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.first:])]
		q.next, q.first = q.next-q.first, 0
	}
	q.items = append(q.items, s)
}

// Pass moves all actions of a section to the next section.
func (q *Queue) Pass(from Section) {
	q.N[from+1], q.N[from] = q.N[from+1]+q.N[from], 0
}

// Take moves the oldest action of the sections Fresh and Arrived to section Taken, and returns it. There must
// be one.
func (q *Queue) Take() schedule.Action {
	if q.N[Arrived] == 0 {
		q.N[Fresh], q.N[Arrived] = q.N[Fresh]-1, 1
	}
	q.N[Arrived], q.N[Taken] = q.N[Arrived]-1, q.N[Taken]+1
	if int(q.taken) == q.items[q.next].N {
		q.next, q.taken = q.next+1, 0
	}
	q.taken++
	return q.items[q.next].at(int(q.taken) - 1)
}

// First returns the oldest action. The queue must not be empty.
func (q *Queue) First() schedule.Action { return q.items[q.first].Head }

// Pop removes the oldest action, which must be in the given section, and returns it.
func (q *Queue) Pop(from Section) schedule.Action {
	s := &q.items[q.first]
	a := s.Head
	q.N[from]--
	if q.next == q.first {
		q.taken = max(q.taken-1, 0)
	}
	switch s.N {
	case 1:
		q.first++
		q.next = max(q.next, q.first)
		if int(q.first) == len(q.items) {
			q.items, q.first, q.next = q.items[:0], 0, 0
		}
	case 2:
		*s = stretch{Head: s.at(1), N: 1}
	default:
		s.Head, s.N = s.at(1), s.N-1
	}
	return a
}

// Ranges iterates over the ranges of the queue with their sections, from the oldest to the newest. It
// divides ranges at the ends of sections.
func (q *Queue) Ranges() iter.Seq2[Section, stretch] {
	return func(yield func(Section, stretch) bool) {
		item, from := int(q.first), 0
		for section := Due; section >= Fresh; section-- {
			for left := int(q.N[section]); left > 0; {
				s := &q.items[item]
				part := stretch{s.at(from), min(s.N-from, left), s.Step}
				if part.N == 1 {
					part.Step = 0
				}
				left, from = left-part.N, from+part.N
				if from == s.N {
					item, from = item+1, 0
				}
				if !yield(section, part) {
					return
				}
			}
		}
	}
}

// skip advances the ranges by n periods, in each of which their heads and lengths change by the first
// deltas. It returns the remaining deltas, which belong to the queues after this one.
func (q *Queue) skip(n int, deltas []int64) []int64 {
	var moved Queue
	for section, part := range q.Ranges() {
		part.Head, part.N = part.Head.Shift(n*int(deltas[0])), part.N+n*int(deltas[1])
		moved.append(part)
		moved.N[section] += int32(part.N)
		if section >= Taken {
			moved.next = int32(len(moved.items) - 1)
			moved.taken = int32(moved.items[moved.next].N)
		}
		deltas = deltas[2:]
	}
	*q = moved
	return deltas
}
