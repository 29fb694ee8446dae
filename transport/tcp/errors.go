package tcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
)

var (
	// ErrRefused is returned by Join where rank 0 does not take the rank in.
	ErrRefused = errors.New("tcp: refused")
	// ErrMissing is returned by Join where a rank has not come in time.
	ErrMissing = errors.New("tcp: ranks are missing")
	// ErrFrame is returned for bytes that are no frame of this protocol.
	ErrFrame = errors.New("tcp: not a frame of this protocol")
)

// LostError ends the job: a rank is gone.
type LostError struct {
	Rank   int
	Last   Status // what it did when it was heard of last; its rank is -1 where that is not known
	Reason string
}

// Error says which rank, why, and what it did last.
func (e *LostError) Error() string {
	if e.Last.Rank < 0 {
		return fmt.Sprintf("tcp: rank %d is lost: %s", e.Rank, e.Reason)
	}
	return fmt.Sprintf("tcp: rank %d is lost: %s; its last heartbeat was in step %d: %s", e.Rank, e.Reason, e.Last.Step, e.Last.does())
}

// LostRank returns Rank, for those who do not know of this package.
func (e *LostError) LostRank() int { return e.Rank }

// Elsewhere says that the cause is not in this process: see launch.ExitStatus.
func (e *LostError) Elsewhere() bool { return true }

// waitError says what a call has waited for when the job ended.
type waitError struct {
	action schedule.Action
	tag    transport.Tag
	rank   int
	err    error
}

func (e *waitError) Error() string {
	what := e.tag.String()
	if e.action != 0 {
		what = e.action.String()
	}
	return fmt.Sprintf("waiting for %s of rank %d: %v", what, e.rank, e.err)
}

func (e *waitError) Unwrap() error { return e.err }

// cause is an error as it crosses processes: its text, and its place in the plan where it
// has one.
type cause struct {
	Rank, Microbatch int
	Action           uint64 // a schedule.Action, with all its bits
	Name, Text       string
	Placed, Canceled bool
	Stall            *transport.StallError // which the hub has found
}

// RemoteError is the cause of an abort that another rank has begun, as text. It is
// context.Canceled where that was one.
type RemoteError struct {
	Rank     int
	text     string
	canceled bool
}

// Error is the text of the cause.
func (e *RemoteError) Error() string { return e.text }

// Elsewhere says that the cause is not in this process: see launch.ExitStatus.
func (e *RemoteError) Elsewhere() bool { return true }

// Is reports whether the target is context.Canceled and the cause was.
func (e *RemoteError) Is(target error) bool { return e.canceled && target == context.Canceled }

// mostText is the most bytes of an error that another process is told.
const mostText = 16 << 10

func encodeCause(err error) []byte {
	c := cause{Text: err.Error()}
	if e, ok := err.(*runner.Error); ok {
		c = cause{Rank: e.Rank, Microbatch: e.Microbatch, Action: uint64(e.Action), Name: e.Name, Text: e.Err.Error(), Placed: true}
	}
	c.Text, c.Canceled = c.Text[:min(len(c.Text), mostText)], errors.Is(err, context.Canceled)
	return encode(c)
}

// encode returns numbers and strings as JSON, which always has a form for them.
func encode(value any) []byte {
	data, _ := json.Marshal(value)
	return data
}

func decodeCause(rank int, data []byte) error {
	var c cause
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%w: a cause: %w", ErrFrame, err)
	}
	if c.Stall != nil {
		return c.Stall
	}
	err := &RemoteError{rank, c.Text, c.Canceled}
	if c.Placed {
		return &runner.Error{Rank: c.Rank, Microbatch: c.Microbatch, Action: schedule.Action(c.Action), Name: c.Name, Err: err}
	}
	return err
}
