package schedule

// queue is a first-in first-out list of actions. It holds stretches of them, so that
// it takes no more space for a million messages of one stage than for two, and its
// ends move with the microbatches as the edges of a set do.
type queue struct {
	items []stretch
	first int // in items
	n     int // actions in all
}

// stretch is n actions, each that of the microbatch one step on from the one before.
type stretch struct {
	head    Action
	n, step int // step is 1, -1, or 0 where n is 1
}

// at returns the i-th action.
func (s *stretch) at(i int) Action { return s.head.Shift(i * s.step) }

// What push and pop did, which is all that later ones depend on.
const (
	began   = iota // a stretch, or the last one ended
	paired         // a stretch of one became one of two, or the reverse
	carried        // a stretch of more is one longer, or shorter
)

func (q *queue) list() []stretch { return q.items[q.first:] }

// push adds an action and returns what it did.
func (q *queue) push(a Action) int {
	q.n++
	if len(q.items) > q.first {
		last := &q.items[len(q.items)-1]
		switch {
		case last.n > 1 && a == last.at(last.n):
			last.n++
			return carried
		case last.n == 1 && (a == last.head.Shift(1) || a == last.head.Shift(-1)):
			last.n, last.step = 2, a.Microbatch()-last.head.Microbatch()
			return paired
		}
	}
	if q.first > 0 && len(q.items) == cap(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.first:])]
		q.first = 0
	}
	q.items = append(q.items, stretch{head: a, n: 1})
	return began
}

// pop takes the first action out of a queue that has one, and returns it and what it
// did.
func (q *queue) pop() (Action, int) {
	s := &q.items[q.first]
	a := s.head
	q.n--
	switch s.n {
	case 1:
		if q.first++; q.first == len(q.items) {
			q.items, q.first = q.items[:0], 0
		}
		return a, began
	case 2:
		*s = stretch{head: s.at(1), n: 1}
		return a, paired
	}
	s.head, s.n = s.at(1), s.n-1
	return a, carried
}

// fill makes the list the queue's own.
func (q *queue) fill(list []stretch) {
	q.items, q.first, q.n = append(q.items[:0], list...), 0, 0
	for _, s := range list {
		q.n += s.n
	}
}

// drift is how a stretch changes in a period: how far its head moves, and by how much
// it grows.
type drift struct{ head, n int }

// since returns how the stretch has changed, and reports whether both of its ends have
// stood still or moved by the stride.
func (s *stretch) since(then stretch, stride int) (drift, bool) {
	d := drift{s.head.Microbatch() - then.head.Microbatch(), s.n - then.n}
	end := d.head + s.step*d.n
	same := s.step == then.step && s.head == then.head.Shift(d.head)
	return d, same && (d.head == 0 || d.head == stride) && (end == 0 || end == stride)
}

// moved returns the stretch after n more periods, and whether it is one of as many
// stretches then.
func (s stretch) moved(d drift, n int) (stretch, bool) {
	s.head, s.n = s.head.Shift(n*d.head), s.n+n*d.n
	return s, s.n > 1 || s.n == 1 && s.step == 0
}
