package tcp

import (
	"fmt"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/transport"
)

// Status is what a rank is doing at a moment.
type Status struct {
	Rank   int
	Step   int64           // the last step that has run an action, numbered like runner.Result.Step
	Action schedule.Action // the current one; 0 outside of its program
	// Position is the number of actions of this step before Action.
	Position int64
	// Waits reports whether the rank waits: for the action For of rank Peer, or for all ranks if
	// Peer is -1.
	Waits bool
	For   schedule.Action
	Peer  int
	Since time.Duration // how long it has waited
}

// same reports whether two statuses are equal, ignoring the time of the wait.
func (s *Status) same(last *Status) bool {
	now := *s
	now.Since = last.Since
	return now == *last
}

// Standing converts the status for a StallError.
func (s *Status) Standing() transport.Standing {
	return transport.Standing{
		Waiting: check.Waiting{Rank: s.Rank, Position: s.Position, Action: s.Action, For: s.For, ForRank: s.Peer},
		Waits:   s.Waits, Since: s.Since,
	}
}

// String describes the status in one line.
func (s Status) String() string { return fmt.Sprintf("rank %d, step %d, %s", s.Rank, s.Step, s.does()) }

// does describes the status without the rank.
func (s *Status) does() string {
	words := "outside of its program"
	if s.Action.Kind() != schedule.None {
		words = fmt.Sprintf("runs %v", s.Action)
	}
	switch {
	case s.Waits && s.Peer < 0:
		words += fmt.Sprintf(", has waited %v for all ranks", s.Since.Round(time.Millisecond))
	case s.Waits && s.For.Kind() == schedule.None:
		words += fmt.Sprintf(", has waited %v for rank %d", s.Since.Round(time.Millisecond), s.Peer)
	case s.Waits:
		words += fmt.Sprintf(", has waited %v for %v of rank %d", s.Since.Round(time.Millisecond), s.For, s.Peer)
	}
	return words
}
