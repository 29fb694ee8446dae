package tcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

var (
	// ErrRefused is returned by Join if rank 0 refuses this rank, or another one that does not
	// match the job.
	ErrRefused = errors.New("tcp: refused")
	// ErrMissing is returned by Join if a rank did not join in time.
	ErrMissing = errors.New("tcp: ranks are missing")
	// ErrSilent is returned by a call that waits for a rank if nothing has arrived on the connection between the
	// two ranks for Config.Silence, even if both of them can reach rank 0.
	ErrSilent = errors.New("tcp: a connection is silent")
	// ErrFrame is returned for bytes that are not a frame of this protocol.
	ErrFrame = errors.New("tcp: not a frame of this protocol")
)

// LostError is the error for a job that ended because a rank was lost.
type LostError struct {
	Rank   int
	Last   *transport.RankStatus // as of the rank's last heartbeat; nil if there was none
	Reason string

	pipeline int  // Config.Pipeline
	own      bool // this process has the rank
}

// Error names the rank, its replica if there are several, the reason, and the rank's last activity.
func (e *LostError) Error() string {
	replica, last := "", ""
	if e.pipeline > 0 {
		replica = fmt.Sprintf(" (rank %d of replica %d)", e.Rank%e.pipeline, e.Rank/e.pipeline)
	}
	if e.Last != nil {
		last = fmt.Sprintf("; its last heartbeat was in step %d: %s", e.Last.Step, e.Last.Activity())
	}
	return fmt.Sprintf("tcp: rank %d is lost%s: %s%s", e.Rank, replica, e.Reason, last)
}

// LostRank returns Rank, for callers that do not import this package.
func (e *LostError) LostRank() int { return e.Rank }

// Elsewhere reports whether the cause is in another process: see launch.ExitStatus. It returns false if the
// other ranks have lost this process, because it was suspended or because they did not hear from it.
func (e *LostError) Elsewhere() bool { return !e.own }

// waitError describes the event for which a call was waiting when the job ended.
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

// cause encodes an error for other processes: its text and, for a transport.StepError, its fields.
type cause struct {
	Rank, Ranks, Microbatch int
	Action                  uint64 // a schedule.Action, with all its bits
	Name, Text              string
	Placed                  bool                  // the error is a transport.StepError
	Canceled                bool                  // the error is context.Canceled
	Stall                   *transport.StallError // set if the hub found a stall
}

// RemoteError is the error with which another process aborted a step. Only its text is known, and whether it
// was context.Canceled.
type RemoteError struct {
	Rank     int
	text     string
	canceled bool
}

// Error returns the cause's text.
func (e *RemoteError) Error() string { return e.text }

// Elsewhere reports that the cause is in another process: see launch.ExitStatus.
func (e *RemoteError) Elsewhere() bool { return true }

// Is reports whether both target and the cause are context.Canceled.
func (e *RemoteError) Is(target error) bool { return e.canceled && target == context.Canceled }

// maxText is the maximum number of bytes in the text of an error that is sent to another process.
const maxText = 16 << 10

func encodeCause(err error) []byte {
	c := cause{Text: err.Error()}
	if e, ok := err.(*transport.StepError); ok {
		c = cause{Rank: e.Rank, Ranks: e.Ranks, Microbatch: e.Microbatch, Action: uint64(e.Action), Name: e.Name, Text: e.Err.Error(), Placed: true}
	}
	c.Text, c.Canceled = c.Text[:min(len(c.Text), maxText)], errors.Is(err, context.Canceled)
	return encode(c)
}

// encode encodes a value as JSON. It cannot fail, because the values consist of numbers and strings.
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
		return &transport.StepError{Rank: c.Rank, Ranks: c.Ranks, Microbatch: c.Microbatch, Action: schedule.Action(c.Action), Name: c.Name, Err: err}
	}
	return err
}
