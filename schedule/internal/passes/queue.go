package passes

import "github.com/weir-ml/weir/schedule"

// Queue is a first-in, first-out list of actions. It stores ranges of ascending or descending
// microbatches, so a million messages of one stage need no more space than two. In a period, the ends
// of the ranges shift with the microbatches, like the edges of a set.
type Queue struct {
	items []stretch
	first int // in items
	N     int // the number of actions
}

// stretch is a range of N actions whose microbatches differ by Step.
type stretch struct {
	Head    schedule.Action
	N, Step int // Step is 1, -1, or 0 if N is 1
}

// at returns the i-th action.
func (s *stretch) at(i int) schedule.Action { return s.Head.Shift(i * s.Step) }

// List returns the ranges of the queue.
func (q *Queue) List() []stretch { return q.items[q.first:] }

// Push adds an action.
func (q *Queue) Push(a schedule.Action) {
	q.N++
	if len(q.items) > q.first {
		last := &q.items[len(q.items)-1]
		switch {
		case last.N > 1 && a == last.at(last.N):
			last.N++
			return
		case last.N == 1 && (a == last.Head.Shift(1) || a == last.Head.Shift(-1)):
			last.N, last.Step = 2, a.Microbatch()-last.Head.Microbatch()
			return
		}
	}
	if q.first > 0 && len(q.items) == cap(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.first:])]
		q.first = 0
	}
	q.items = append(q.items, stretch{Head: a, N: 1})
}

// Pop removes and returns the first action. The queue must not be empty.
func (q *Queue) Pop() schedule.Action {
	s := &q.items[q.first]
	a := s.Head
	q.N--
	switch s.N {
	case 1:
		if q.first++; q.first == len(q.items) {
			q.items, q.first = q.items[:0], 0
		}
		return a
	case 2:
		*s = stretch{Head: s.at(1), N: 1}
		return a
	}
	s.Head, s.N = s.at(1), s.N-1
	return a
}
