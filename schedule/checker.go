package schedule

import "fmt"

// checker collects faults.
type checker struct {
	outline
	name    string
	allowed []uint32 // by stage: the set of kinds that the plan may have of it
	totals  []runs   // by set: the microbatches that the plan has, from the census
	lost    bool     // actions that belong nowhere: nothing else means anything
	counted bool     // the census has found nothing wrong
	ordered bool     // the census has seen every action behind what it needs on its rank
	uneven  []bool   // by edge: sends and receives do not come in pairs
	visited int64    // the most actions that a pass has looked at

	compared int64 // messages, one by one

	faults []Fault
	more   int
	seen   map[faultPlace]struct{}
}

// spot is where an action is in the programs.
type spot struct {
	rank, segment, index int
	position             int64
	action               Action
	mb                   int64 // of the action, which may lie outside of what an Action holds
}

// faultPlace tells faults apart that are not repeats of each other.
type faultPlace struct {
	code                 Code
	rank, segment, index int
	about                string
}

func (c *checker) err() error {
	if len(c.faults) == 0 {
		return nil
	}
	return &PlanError{Plan: c.name, Faults: c.faults, More: c.more}
}

// add adds a fault, in the place of the last one where the list is full and it
// is a deadlock, which must not be lost.
func (c *checker) add(f Fault) {
	switch {
	case len(c.faults) < maxFaults:
		c.faults = append(c.faults, f)
	case f.Code == Deadlock:
		c.faults[maxFaults-1] = f
		c.more++
	default:
		c.more++
	}
}

// plain adds a fault of no action.
func (c *checker) plain(code Code, rank int, format string, args ...any) {
	c.add(Fault{Code: code, Rank: rank, Position: -1, Text: fmt.Sprintf(format, args...)})
}

// at adds a fault of the action at which the walk is.
func (c *checker) at(w *walk, rank int, a Action, mb int64, code Code, about, format string, args ...any) {
	if !w.trial {
		c.fault(spot{rank, w.segment, w.index, w.position, a, mb}, code, about, format, args...)
	}
}

// fault adds a fault of an action. A fault about the same thing that comes back in
// the repeats of a segment is added once.
func (c *checker) fault(s spot, code Code, about, format string, args ...any) {
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
	if !a.Kind().ofStage() {
		name = fmt.Sprintf("%d%v%d", a.Stage(), a.Kind(), s.mb)
	}
	text := fmt.Sprintf("Rank %d, action %d: %s ", s.rank, s.position, name)
	c.add(Fault{Code: code, Rank: s.rank, Position: s.position, Action: a, Text: text + fmt.Sprintf(format, args...)})
}

// unproved adds a fault for a walk that was given up, and reports whether it was.
func (c *checker) unproved(w *walk, rank int) bool {
	if w.exhausted {
		c.plain(Unproved, rank, "The program of rank %d is too large and takes its microbatches in too irregular an order to be checked; write it in segments whose microbatches ascend or descend without gaps.", rank)
	}
	return w.exhausted
}

// untold adds a fault for what is between the ranks and was given up.
func (c *checker) untold() {
	c.plain(Unproved, -1, "The programs of all ranks together are too large and too irregular to prove what passes between them; write them in segments whose microbatches ascend or descend without gaps.")
}

// looked notes how much a pass had to look at.
func (c *checker) looked(w *walk) { c.visited = max(c.visited, w.visited) }

// actions returns the number of actions of all ranks.
func (c *checker) actions() int64 {
	var n int64
	for rank := range c.plan.Programs {
		n += c.plan.Actions(rank)
	}
	return n
}

// findAction returns where the plan has an action, whatever dies with it.
func findAction(p *Plan, rank int, want Action) spot {
	start := int64(0)
	for i, s := range p.Programs[rank] {
		for k, a := range s.Body {
			if a.Kind() != want.Kind() || a.Stage() != want.Stage() {
				continue
			}
			moved, repeat := want.Microbatch()-a.Microbatch(), 0
			if s.Stride != 0 {
				repeat = moved / s.Stride
			}
			if repeat >= 0 && repeat < s.Repeat && repeat*s.Stride == moved {
				return spot{rank, i, k, start + int64(repeat)*int64(len(s.Body)) + int64(k), want, int64(want.Microbatch())}
			}
		}
		start += int64(len(s.Body)) * int64(s.Repeat)
	}
	return spot{rank: rank, position: -1, action: want, mb: int64(want.Microbatch())}
}
