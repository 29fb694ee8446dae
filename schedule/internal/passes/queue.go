package passes

import "github.com/weir-ml/weir/schedule"

// Queue is a first-in first-out list of actions. It holds stretches of them, so that
// it takes no more space for a million messages of one stage than for two, and its
// ends move with the microbatches as the edges of a set do.
type Queue struct {
	items []stretch
	first int // in items
	N     int // actions in all
}

// stretch is n actions, each that of the microbatch one step on from the one before.
type stretch struct {
	Head    schedule.Action
	N, Step int // step is 1, -1, or 0 where n is 1
}

// at returns the i-th action.
func (s *stretch) at(i int) schedule.Action { return s.Head.Shift(i * s.Step) }

// What push and pop did, which is all that later ones depend on.
const (
	began   = iota // a stretch, or the last one ended
	paired         // a stretch of one became one of two, or the reverse
	carried        // a stretch of more is one longer, or shorter
)

func (q *Queue) List() []stretch { return q.items[q.first:] }

// Push adds an action and returns what it did.
func (q *Queue) Push(a schedule.Action) int {
	q.N++
	if len(q.items) > q.first {
		last := &q.items[len(q.items)-1]
		switch {
		case last.N > 1 && a == last.at(last.N):
			last.N++
			return carried
		case last.N == 1 && (a == last.Head.Shift(1) || a == last.Head.Shift(-1)):
			last.N, last.Step = 2, a.Microbatch()-last.Head.Microbatch()
			return paired
		}
	}
	if q.first > 0 && len(q.items) == cap(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.first:])]
		q.first = 0
	}
	q.items = append(q.items, stretch{Head: a, N: 1})
	return began
}

// Pop takes the first action out of a queue that has one, and returns it and what it
// did.
func (q *Queue) Pop() (schedule.Action, int) {
	s := &q.items[q.first]
	a := s.Head
	q.N--
	switch s.N {
	case 1:
		if q.first++; q.first == len(q.items) {
			q.items, q.first = q.items[:0], 0
		}
		return a, began
	case 2:
		*s = stretch{Head: s.at(1), N: 1}
		return a, paired
	}
	s.Head, s.N = s.at(1), s.N-1
	return a, carried
}

// fill makes the list the queue's own.
func (q *Queue) fill(list []stretch) {
	q.items, q.first, q.N = append(q.items[:0], list...), 0, 0
	for _, s := range list {
		q.N += s.N
	}
}

// drift is how a stretch changes in a period: how far its head moves, and by how much
// it grows.
type drift struct{ head, n int }

// since returns how the stretch has changed, and reports whether both of its ends have
// stood still or moved by the stride.
func (s *stretch) since(then stretch, stride int) (drift, bool) {
	d := drift{s.Head.Microbatch() - then.Head.Microbatch(), s.N - then.N}
	end := d.head + s.Step*d.n
	same := s.Step == then.Step && s.Head == then.Head.Shift(d.head)
	return d, same && (d.head == 0 || d.head == stride) && (end == 0 || end == stride)
}

// moved returns the stretch after n more periods, and whether it is one of as many
// stretches then.
func (s stretch) moved(d drift, n int) (stretch, bool) {
	s.Head, s.N = s.Head.Shift(n*d.head), s.N+n*d.n
	return s, s.N > 1 || s.N == 1 && s.Step == 0
}
