package tcp

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weir-ml/weir/schedule"
)

// Status is what a rank does at a moment.
type Status struct {
	Rank   int
	Step   int64           // steps that have begun, evaluations too
	Action schedule.Action // under way; 0 outside of its program
	// Waits says that the rank waits: for For of Peer, or for all ranks where Peer is -1.
	Waits bool
	For   schedule.Action
	Peer  int
	Since time.Duration // for how long it has waited
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

// statusBytes is the size of a status in a heartbeat.
const statusBytes = 6 * 8

func (s *Status) append(b []byte) []byte {
	waits := uint64(0)
	if s.Waits {
		waits = 1
	}
	for _, n := range [...]uint64{uint64(s.Step), uint64(s.Action), waits, uint64(s.For), uint64(s.Peer), uint64(s.Since)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func decodeStatus(rank int, b []byte) (Status, bool) {
	if len(b) != statusBytes {
		return Status{}, false
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return Status{
		Rank: rank, Step: int64(n(0)), Action: schedule.Action(n(1)), Waits: n(2) != 0,
		For: schedule.Action(n(3)), Peer: int(int64(n(4))), Since: time.Duration(n(5)),
	}, true
}
