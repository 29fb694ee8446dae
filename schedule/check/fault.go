package check

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// ErrInvalidPlan is matched by every error that this package returns. An error that lists a deadlock
// also matches waitgraph.ErrDeadlock.
var ErrInvalidPlan = errors.New("schedule: invalid plan")

// Code is the kind of a fault.
type Code uint8

// The codes.
const (
	Malformed         Code = iota // the plan's parts do not fit together
	UnknownStage                  // an action of a stage that is not in the placement
	UnknownMicrobatch             // an action of a microbatch that its stage does not run
	Unexpected                    // an action ruled out by the plan's mode, frozen stages or facts
	WrongRank                     // an action that is not on the rank of its stage
	Missing                       // a required action that the plan lacks
	Twice                         // an action that occurs more than once
	Mixed                         // both B and I or W for one stage and microbatch
	Order                         // an action before one of its dependencies
	Pairing                       // a receive that meets the wrong message on its link, or a wait that meets the wrong copy
	Deadlock                      // ranks that wait for each other forever
	BadJoin                       // a join with an action that cannot overlap
	UseAfterDrop                  // a read of dropped data, or a drop before a later use
	MissingDrop                   // data that is never dropped
	DoubleDrop                    // data that is dropped again
	MisplacedDrop                 // a drop of data that does not exist there
	BadRetire                     // a microbatch that does not retire at its last action on a rank
	WindowExceeded                // more microbatches of a stage in flight than declared
	EntriesExceeded               // more batch entries on a rank than declared
	OutgoingExceeded              // more microbatches of a stage waiting to be sent or in flight than declared
	Sharding                      // weights that are missing, gathered or released twice, or never released
	Reduction                     // a reduction, or its allocation or wait, that is out of order or that has nothing to reduce
	Unproved                      // a plan that is too large and too irregular to check
	numCodes          = int(Unproved) + 1
)

var codeNames = [numCodes]string{
	"malformed", "unknown stage", "unknown microbatch", "unexpected action", "wrong rank", "missing action",
	"action twice", "mixed backward", "order", "pairing", "deadlock", "join", "use after drop", "missing drop",
	"double drop", "misplaced drop", "retire", "window exceeded", "entries exceeded",
	"outgoing exceeded", "sharding", "reduction", "unproved",
}

// String returns the name of the code in one to three words.
func (c Code) String() string {
	if int(c) < numCodes {
		return codeNames[c]
	}
	return "code(?)"
}

// A Fault is one defect of a plan.
type Fault struct {
	Code     Code
	Rank     int             // -1 if the fault does not belong to one rank
	Position int64           // the action's position in the rank's program, from 0, counting every repeat; -1 if there is none
	Action   schedule.Action // the action at fault, or the missing one; the zero Action if there is none
	Text     string          // one or two sentences: the fault, its location, and how to correct it
	// Cycle is the waiting cycle of a Deadlock, as waitgraph.FindCycle returns it; nil in other faults.
	Cycle []waitgraph.Waiting
}

// maxFaults is the number of faults of each code that an Error lists.
const maxFaults = 5

// Error lists the faults of a plan. It matches ErrInvalidPlan, and waitgraph.ErrDeadlock if a fault is a
// deadlock.
type Error struct {
	Plan   string       // the plan's name
	Faults []Fault      // the first faults of each code; a fault that recurs in every repeat is listed once
	More   map[Code]int // by code: the number of faults that are not listed
}

// Error returns one line with the Text of each listed fault and the numbers of the others.
func (e *Error) Error() string { return "schedule: " + e.Text() }

// Text is like Error, but without the name of the package.
func (e *Error) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %q is invalid:", e.Plan)
	for _, f := range e.Faults {
		b.WriteByte(' ')
		b.WriteString(f.Text)
	}
	for code := range Code(numCodes) {
		if n := e.More[code]; n > 0 {
			fmt.Fprintf(&b, " There are %d more faults of kind %q.", n, code)
		}
	}
	return b.String()
}

// Is reports whether the target is ErrInvalidPlan, or is waitgraph.ErrDeadlock and one of the faults is a
// deadlock.
func (e *Error) Is(target error) bool {
	if target == waitgraph.ErrDeadlock {
		for _, f := range e.Faults {
			if f.Code == Deadlock {
				return true
			}
		}
		return false
	}
	return target == ErrInvalidPlan
}
