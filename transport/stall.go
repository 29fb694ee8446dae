package transport

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// StallError ends a step without progress. It is check.ErrDeadlock if ranks wait for each other.
type StallError struct {
	// Way is the result of check.FindCycle for deadlocked ranks: the cycle of waiting ranks, or the
	// chain of waits to a rank that has reached its end. It is nil if a rank takes too long.
	Way []check.Waiting
	// Still is how long no rank has begun an action, if Way is nil.
	Still time.Duration
	Ranks []Standing // by rank
}

// Standing is what a rank is doing when a step stalls.
type Standing struct {
	// Rank and Action are always set. A rank that does not wait is running Action, or is outside
	// of its program if Action is 0. Position is set if the rank waits.
	check.Waiting
	Waits bool
	Since time.Duration // how long it has waited
}

// Error describes the waits of the ranks, as check.Plan does, or the activity of every rank.
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

// Is reports whether target is check.ErrDeadlock and ranks wait for each other.
func (e *StallError) Is(target error) bool {
	return target == check.ErrDeadlock && e.Way != nil && e.Way[len(e.Way)-1].ForRank == e.Way[0].Rank
}

// String describes the rank's activity in one line.
func (s Standing) String() string { return fmt.Sprintf("rank %d %s", s.Rank, s.does()) }

// does describes the activity, in the terms of the plan.
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
