package transport

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// StallError is the error for a step that makes no progress. It matches waitgraph.ErrDeadlock if ranks
// wait for each other.
type StallError struct {
	// WaitChain is the result of waitgraph.FindCycle if ranks are deadlocked: a cycle of waiting ranks, or a
	// chain of waiting ranks that ends at a rank without further actions. It is nil if a rank merely
	// takes too long.
	WaitChain []waitgraph.Waiting
	// IdleFor is the time in which no rank has made progress, if WaitChain is nil.
	IdleFor time.Duration
	Ranks   []RankStatus // of all ranks, in order
}

// RankStatus is a snapshot of a rank's state. It can be marshaled as JSON.
type RankStatus struct {
	// Rank and Action are always set. A rank that does not wait is running Action, or is outside its
	// program if Action is 0. If the rank waits, Position is set, ForRank is -1 if it waits for all
	// ranks, and For is 0 if it waits outside its program.
	waitgraph.Waiting
	Step  int64           // the last step in which the rank began an action, numbered like runner.Result.Step
	Last  schedule.Action // the action before Action in the step, or 0
	Waits bool
	Since time.Duration // how long the rank has waited
	Read  int64         // the number of bytes that the rank has read from other ranks' Windows, in all steps
	Age   time.Duration // for a rank of another process: the time since the heartbeat that carried this status
}

// Error describes WaitChain, as check.Plan does, or the activity of every rank if WaitChain is nil.
func (e *StallError) Error() string {
	if e.WaitChain != nil {
		return "transport: deadlock: " + waitgraph.DescribeCycle(e.WaitChain)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "transport: no rank has begun an action for %v:", e.IdleFor)
	for i, s := range e.Ranks {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %v", s)
	}
	return b.String()
}

// Is reports whether target is waitgraph.ErrDeadlock and ranks wait for each other.
func (e *StallError) Is(target error) bool {
	return target == waitgraph.ErrDeadlock && e.WaitChain != nil && e.WaitChain[len(e.WaitChain)-1].ForRank == e.WaitChain[0].Rank
}

// String describes the status on one line.
func (s RankStatus) String() string {
	return fmt.Sprintf("rank %d, step %d, %s", s.Rank, s.Step, s.Activity())
}

// Activity describes the status without the rank and the step.
func (s *RankStatus) Activity() string {
	words := "is outside of its program"
	if s.Action.Kind() != schedule.None {
		words = fmt.Sprintf("runs %v", s.Action)
	}
	if s.Waits {
		words += fmt.Sprintf(", has waited %v for ", s.Since.Round(time.Millisecond))
		switch {
		case s.ForRank < 0:
			words += "all ranks"
		case s.For.Kind() == schedule.None:
			words += fmt.Sprintf("rank %d", s.ForRank)
		default:
			words += fmt.Sprintf("%v of rank %d", s.For, s.ForRank)
		}
	}
	return words
}
