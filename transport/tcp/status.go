package tcp

import (
	"fmt"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/transport"
)

// Status is what a rank does at a moment.
type Status struct {
	Rank   int
	Step   int64           // the last one that has run an action, as runner.Result.Step counts them
	Action schedule.Action // under way; 0 outside of its program
	// Position is the number of actions of this step before Action.
	Position int64
	// Waits says that the rank waits: for For of Peer, or for all ranks where Peer is -1.
	Waits bool
	For   schedule.Action
	Peer  int
	Since time.Duration // for how long it has waited
}

// same reports whether a rank still does what it did, for however long it has waited.
func (s *Status) same(last *Status) bool {
	now := *s
	now.Since = last.Since
	return now == *last
}

// Standing is the status in the terms of a stall.
func (s *Status) Standing() transport.Standing {
	return transport.Standing{
		Waiting: check.Waiting{Rank: s.Rank, Position: s.Position, Action: s.Action, For: s.For, ForRank: s.Peer},
		Waits:   s.Waits, Since: s.Since,
	}
}

// String is a line for people.
func (s Status) String() string { return fmt.Sprintf("rank %d, step %d, %s", s.Rank, s.Step, s.does()) }

// does says it without the rank.
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
