package check

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Checker collects faults.
type Checker struct {
	passes.Outline
	Name    string
	allowed []uint32       // by stage: the set of kinds that the plan may have of it
	totals  []repeats.Runs // by set: the microbatches that the plan has, from the census
	lost    bool           // actions that belong nowhere: nothing else means anything
	counted bool           // the census has found nothing wrong
	ordered bool           // the census has found every action after its needs on its rank
	uneven  []bool         // by edge: sends and receives do not come in pairs
	visited int64          // the most actions that a traversal has visited

	rendezvous bool // links of capacity 0 do not end in a deadlock

	compared int64 // messages that pairing has compared one by one

	Faults []Fault
	listed [numCodes]int
	more   map[Code]int
	seen   map[faultPlace]struct{}
}

// spot is the place of an action in the programs.
type spot struct {
	rank, segment, index int
	position             int64
	action               schedule.Action
	mb                   int64 // of the action, which may be larger than an Action can hold
}

// faultPlace is equal for faults that are repeats of each other.
type faultPlace struct {
	code                 Code
	rank, segment, index int
	about                string
}

func (c *Checker) Err() error {
	if len(c.Faults) == 0 {
		return nil
	}
	return &Error{Plan: c.Name, Faults: c.Faults, More: c.more}
}

// Add adds a fault, or counts it if enough faults of its code are listed.
func (c *Checker) Add(f Fault) {
	if c.listed[f.Code] < maxFaults {
		c.Faults = append(c.Faults, f)
		c.listed[f.Code]++
		return
	}
	c.addMore(f.Code, 1)
}

// addMore counts faults that are not listed.
func (c *Checker) addMore(code Code, n int) {
	if c.more == nil {
		c.more = map[Code]int{}
	}
	c.more[code] += n
}

// plain adds a fault of no action.
func (c *Checker) plain(code Code, rank int, format string, args ...any) {
	c.Add(Fault{Code: code, Rank: rank, Position: -1, Text: fmt.Sprintf(format, args...)})
}

// at adds a fault of the action at which the walk is.
func (c *Checker) at(w *passes.Walk, rank int, a schedule.Action, mb int64, code Code, about, format string, args ...any) {
	c.fault(spot{rank, w.Segment, w.Index, w.Position, a, mb}, code, about, format, args...)
}

// fault adds a fault of an action. A fault that recurs in the repeats of a segment is added once.
func (c *Checker) fault(s spot, code Code, about, format string, args ...any) {
	place := faultPlace{code, s.rank, s.segment, s.index, about}
	if _, ok := c.seen[place]; ok {
		return
	}
	if c.seen == nil {
		c.seen = map[faultPlace]struct{}{}
	}
	c.seen[place] = struct{}{}
	a := s.action.Shift(int(s.mb) - s.action.Microbatch())
	name := a.String()
	if !a.Kind().OfStage() {
		name = fmt.Sprintf("%d%v%d", a.Stage(), a.Kind(), s.mb)
	}
	text := fmt.Sprintf("Rank %d, action %d: %s ", s.rank, s.position, name)
	c.Add(Fault{Code: code, Rank: s.rank, Position: s.position, Action: a, Text: text + fmt.Sprintf(format, args...)})
}

// Unproved adds a fault for a walk that was given up, and reports whether it was.
func (c *Checker) Unproved(w *passes.Walk, rank int) bool {
	if w.Exhausted {
		c.plain(Unproved, rank, "The program of rank %d is too large and takes its microbatches in too irregular an order to be checked; write it in segments whose microbatches ascend or descend without gaps.", rank)
	}
	return w.Exhausted
}

// undecided adds a fault if the proof of what passes between the ranks was given up.
func (c *Checker) undecided() {
	c.plain(Unproved, -1, "The programs of all ranks together are too large and too irregular to prove what passes between them; write them in segments whose microbatches ascend or descend without gaps.")
}

// looked notes how many actions a walk has visited.
func (c *Checker) looked(w *passes.Walk) { c.visited = max(c.visited, w.Visited) }

// actions returns the number of actions of all ranks.
func (c *Checker) actions() int64 {
	var n int64
	for rank := range c.Plan.Programs {
		n += c.Plan.Actions(rank)
	}
	return n
}

// findAction returns the place of an action in the plan, whatever it drops.
func findAction(p *schedule.Plan, rank int, want schedule.Action) spot {
	start := int64(0)
	for i, s := range p.Programs[rank] {
		first, length := 0, s.Len() // first action of the inner segment
		for _, inner := range s.Inside() {
			for k, a := range inner.Body {
				if a.Kind() != want.Kind() || a.Stage() != want.Stage() {
					continue
				}
				for again := range inner.Repeat {
					moved, repeat := want.Microbatch()-a.Microbatch()-again*inner.Stride, 0
					if s.Stride != 0 {
						repeat = moved / s.Stride
					}
					if repeat >= 0 && repeat < s.Repeat && repeat*s.Stride == moved {
						at := first + again*len(inner.Body) + k
						return spot{rank, i, at, start + int64(repeat)*length + int64(at), want, int64(want.Microbatch())}
					}
				}
			}
			first += len(inner.Body) * inner.Repeat
		}
		start += length * int64(s.Repeat)
	}
	return spot{rank: rank, position: -1, action: want, mb: int64(want.Microbatch())}
}
