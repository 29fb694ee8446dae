package check

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Checker holds the state of a check and the faults found so far.
type Checker struct {
	passes.Outline
	Name    string
	allowed []uint32       // by stage: a bit set of the kinds that the plan may have for the stage
	totals  []repeats.Runs // by Outline.Set of a stage and kind: the microbatches that the census has found in the plan
	aborted bool           // the faults found so far make later checks meaningless
	counted bool           // the census has found no faults
	ordered bool           // the census has found every action after its dependencies on its rank
	uneven  []bool         // by edge: the numbers of sends and receives differ
	visited int64          // the largest number of actions visited in a single traversal

	rendezvous bool    // the plan is known not to deadlock with links of capacity 0
	sizes      Sizes   // the sizes of messages; 1 each if the capacity of links is in messages
	edgeSizes  []int64 // by edge: the size of its messages; see measure

	compared int64 // the number of messages and copies that pair has compared one by one

	Faults []Fault
	listed [numCodes]int
	more   map[Code]int
	seen   map[faultPlace]struct{}
}

// location identifies an action in the programs.
type location struct {
	rank, segment, index int
	position             int64
	action               schedule.Action
	mb                   int64 // the microbatch of the action, which may exceed the range of an Action
}

// faultPlace identifies a fault, so that the repeats of a fault have equal faultPlaces.
type faultPlace struct {
	code                 Code
	rank, segment, index int
	about                string
}

// Err returns a *Error with all faults found so far, or nil.
func (c *Checker) Err() error {
	if len(c.Faults) == 0 {
		return nil
	}
	return &Error{Plan: c.Name, Faults: c.Faults, More: c.more}
}

// Add adds a fault, or only counts it if maxFaults faults of its code are already listed.
func (c *Checker) Add(f Fault) {
	if c.listed[f.Code] < maxFaults {
		c.Faults = append(c.Faults, f)
		c.listed[f.Code]++
		return
	}
	c.addMore(f.Code, 1)
}

// addMore counts n faults that are not listed.
func (c *Checker) addMore(code Code, n int) {
	if c.more == nil {
		c.more = map[Code]int{}
	}
	c.more[code] += n
}

// planFault adds a fault that does not belong to an action.
func (c *Checker) planFault(code Code, rank int, format string, args ...any) {
	c.Add(Fault{Code: code, Rank: rank, Position: -1, Text: fmt.Sprintf(format, args...)})
}

// fault adds a fault for an action. A fault that recurs in the repeats of a segment is added once.
func (c *Checker) fault(s location, code Code, about, format string, args ...any) {
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

// Unproved reports whether the walk of a rank's program has exhausted its allowance, and if so, adds a fault.
func (c *Checker) Unproved(sets *repeats.Sets, rank int) bool {
	if sets.Exhausted {
		c.planFault(Unproved, rank, "The program of rank %d is too large to check, because the order of its microbatches is too irregular; write it in segments whose microbatches ascend or descend without gaps.", rank)
	}
	return sets.Exhausted
}

// undecided adds a fault for programs whose dependencies between ranks are too costly to check.
func (c *Checker) undecided() {
	c.planFault(Unproved, -1, "The programs of all ranks together are too large and too irregular to check the dependencies between them; write them in segments whose microbatches ascend or descend without gaps.")
}

// actions returns the number of actions on all ranks.
func (c *Checker) actions() int64 {
	var n int64
	for rank := range c.Plan.Programs {
		n += c.Plan.Actions(rank)
	}
	return n
}

// findAction returns the first location of an action in the program of a rank, ignoring drops and
// joins. The position is -1 if the program does not contain the action.
func findAction(p *schedule.Plan, rank int, want schedule.Action) location {
	start := int64(0)
	for i, s := range p.Programs[rank] {
		first, length := 0, s.Len() // first action of the inner segment
		for _, inner := range s.Inside() {
			for k, a := range inner.Body {
				if a.Kind() != want.Kind() || a.Stage() != want.Stage() {
					continue
				}
				for innerRepeat := range inner.Repeat {
					moved, repeat := want.Microbatch()-a.Microbatch()-innerRepeat*inner.Stride, 0
					if s.Stride != 0 {
						repeat = moved / s.Stride
					}
					if repeat >= 0 && repeat < s.Repeat && repeat*s.Stride == moved {
						index := first + innerRepeat*len(inner.Body) + k
						return location{rank, i, index, start + int64(repeat)*length + int64(index), want, int64(want.Microbatch())}
					}
				}
			}
			first += len(inner.Body) * inner.Repeat
		}
		start += length * int64(s.Repeat)
	}
	return location{rank: rank, position: -1, action: want, mb: int64(want.Microbatch())}
}
