package transport

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// StallError ends a step that stands still. It is check.ErrDeadlock where ranks
// wait for each other.
type StallError struct {
	// Way is what check.FindCycle says of the ranks that can never go on: those that
	// wait for each other, or the way to a rank that has come to its end. It is nil where
	// a rank takes too long.
	Way []check.Waiting
	// Still is for how long no rank has begun an action, where one takes too long.
	Still time.Duration
	Ranks []Standing // by rank
}

// Standing is what a rank does when a step stands still.
type Standing struct {
	// Rank and Action are always set: a rank that does not wait runs the action, and is
	// outside of its program where it is 0. Position is set where the rank waits.
	check.Waiting
	Waits bool
	Since time.Duration // for how long it has waited
}

// Error says who waits for which action of whom, as check.Plan does, or what
// every rank does.
func (e *StallError) Error() string {
	if e.Way != nil {
		return "transport: deadlock: " + check.DescribeCycle(e.Way)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "transport: no rank has begun an action for %v:", e.Still)
	for i, s := range e.Ranks {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %v", s)
	}
	return b.String()
}

// Is reports whether the target is check.ErrDeadlock and ranks wait for each other.
func (e *StallError) Is(target error) bool {
	return target == check.ErrDeadlock && e.Way != nil && e.Way[len(e.Way)-1].ForRank == e.Way[0].Rank
}

// String is a line for people.
func (s Standing) String() string { return fmt.Sprintf("rank %d %s", s.Rank, s.does()) }

// does says what the rank does, in the terms of the plan.
func (s *Standing) does() string {
	inside := s.Action.Kind() != schedule.None
	switch {
	case s.Waits && inside:
		return fmt.Sprintf("stands before action %d, %v, and has waited %v for %v of rank %d", s.Position, s.Action, s.Since, s.For, s.ForRank)
	case s.Waits:
		return fmt.Sprintf("is at step end and has waited %v for rank %d", s.Since, s.ForRank)
	case inside:
		return fmt.Sprintf("runs %v", s.Action)
	}
	return "is before its first action or behind its last"
}
