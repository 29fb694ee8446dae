package check

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

var (
	// ErrInvalidPlan is in every error of Check.
	ErrInvalidPlan = errors.New("schedule: invalid plan")
	// ErrDeadlock is also in an error of Check if ranks wait for each other for ever.
	ErrDeadlock = errors.New("schedule: deadlock")
)

// Code is the kind of a fault.
type Code uint8

// The codes.
const (
	Malformed         Code = iota // the plan's parts do not fit together
	UnknownStage                  // an action of a stage that the placement does not have
	UnknownMicrobatch             // an action of a microbatch beyond the plan's
	Unexpected                    // an action that the plan's mode, frozen stages or facts rule out
	WrongRank                     // an action on a rank that does not have its stage
	Missing                       // an action that the plan must have
	Twice                         // an action that the plan has more than once
	Mixed                         // B beside I or W for one stage and microbatch
	Order                         // an action before one that it needs
	Pairing                       // a receive that meets another send than its own
	Deadlock                      // ranks that wait for each other for ever
	BadJoin                       // a join with an action that cannot overlap
	UseAfterDrop                  // something is read, or ends, after it was dropped
	MissingDrop                   // something is never dropped
	DoubleDrop                    // something is dropped again
	MisplacedDrop                 // a drop of what is not there
	BadRetire                     // a microbatch does not retire with its last action on a rank
	WindowExceeded                // more microbatches of a stage in flight than declared
	EntriesExceeded               // more batch entries on a rank than declared
	OutgoingExceeded              // more microbatches of a stage on their way out than declared
	Sharding                      // weights that are not there, or are gathered or given up twice, or kept
	Reduction                     // gradients behind their last reduction, or a reduction of nothing
	Unproved                      // too large and too irregular to check
	numCodes          = int(Unproved) + 1
)

var codeNames = [numCodes]string{
	"malformed", "unknown stage", "unknown microbatch", "unexpected action", "wrong rank", "missing action",
	"action twice", "mixed backward", "order", "pairing", "deadlock", "join", "use after drop", "missing drop",
	"double drop", "misplaced drop", "retire", "window exceeded", "entries exceeded",
	"outgoing exceeded", "sharding", "reduction", "unproved",
}

// String returns a name of one to three words.
func (c Code) String() string {
	if int(c) < numCodes {
		return codeNames[c]
	}
	return "code(?)"
}

// A Fault is one thing that is wrong with a plan.
type Fault struct {
	Code     Code
	Rank     int             // -1 if the fault is of no single rank
	Position int64           // of the action in the rank's program, from 0, each repeat counted; -1 if it is not there
	Action   schedule.Action // the action at fault, or the missing one; the zero Action if there is none
	Text     string          // one sentence: the fault, its place, and a way to put it right
	// Cycle is the waiting cycle of a Deadlock, as FindCycle returns it; nil in other faults.
	Cycle []Waiting
}

// maxFaults is how many faults of one code an Error lists.
const maxFaults = 5

// Error lists the faults of a plan. It is ErrInvalidPlan, and ErrDeadlock if a fault is a deadlock.
type Error struct {
	Plan   string       // the plan's name
	Faults []Fault      // the first of each code; a fault that comes back in every repeat is listed once
	More   map[Code]int // how many more there are of a code
}

// Error returns one sentence for each fault, on one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "schedule: plan %q is invalid:", e.Plan)
	for _, f := range e.Faults {
		b.WriteByte(' ')
		b.WriteString(f.Text)
	}
	for code := range Code(numCodes) {
		if n := e.More[code]; n > 0 {
			fmt.Fprintf(&b, " There are %d more faults of the kind %q.", n, code)
		}
	}
	return b.String()
}

// Is reports whether the target is ErrInvalidPlan, or ErrDeadlock and one of the
// faults is a deadlock.
func (e *Error) Is(target error) bool {
	if target == ErrDeadlock {
		for _, f := range e.Faults {
			if f.Code == Deadlock {
				return true
			}
		}
		return false
	}
	return target == ErrInvalidPlan
}
