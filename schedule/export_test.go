package schedule

// What tests of their own look at.
var (
	Fold     = fold
	Distance = distance
)

// Queue is what is on its way between ranks.
type Queue struct{ queue }

func (q *Queue) Push(a Action)  { q.push(a) }
func (q *Queue) Pop() Action    { a, _ := q.pop(); return a }
func (q *Queue) Len() int       { return q.n }
func (q *Queue) Stretches() int { return len(q.list()) }
