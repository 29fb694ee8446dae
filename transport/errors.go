package transport

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/schedule"
)

// ErrClosed is returned by Begin, and by the other calls of a step, if the transport is closed.
var ErrClosed = errors.New("transport: closed")

// ErrRanks is returned if the ranks do not run the same step: their hellos differ, or their reports
// at step end contradict each other.
var ErrRanks = errors.New("transport: the ranks do not run the same step")

// ErrWindow is returned for memory that a rank does not expose: for a range outside the exposed
// memory, or for a tag that the rank has withdrawn, has already exposed or cannot expose.
var ErrWindow = errors.New("transport: memory is not exposed")

// TagError is returned by Recv for a message whose tag or number of tensors is not the expected one.
// The sender's next call on the link returns it, too.
type TagError struct {
	From, To            int // the ranks of the sender and the receiver
	Sent, Expected      Tag
	Tensors, ExpectedOf int // number of tensors sent, and number expected
}

// Error describes the message that was sent and the one that was expected.
func (e *TagError) Error() string {
	return fmt.Sprintf("transport: rank %d sent %v with %d tensors to rank %d, which expected %v with %d: send and receive in the same order",
		e.From, e.Sent, e.Tensors, e.To, e.Expected, e.ExpectedOf)
}

// StepError is a step's error with its location. It wraps the cause. The first error of any rank ends the
// step on all ranks, and all return it.
type StepError struct {
	Rank       int             // the rank's number, counted over all replicas
	Ranks      int             // the number of ranks in each replica's pipeline; 0 if there is one replica
	Action     schedule.Action // the action in the plan; its kind is schedule.None at step end
	Microbatch int             // the microbatch's index in the batch (Entry.Index)
	Name       string          // the stage's name
	Err        error
}

// Error returns the location and the cause.
func (e *StepError) Error() string {
	if e.Action.Kind() == schedule.None {
		return fmt.Sprintf("runner: %s at step end: %v", RankName(e.Rank, e.Ranks), e.Err)
	}
	return fmt.Sprintf("runner: %s action %v (stage %d %s, microbatch %d): %v",
		RankName(e.Rank, e.Ranks), e.Action, e.Action.Stage(), e.Name, e.Microbatch, e.Err)
}

// RankName returns the name of a rank. If ranks is not 0, it is the number of ranks in each replica's
// pipeline, and the name includes the replica.
func RankName(rank, ranks int) string {
	if ranks == 0 {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("replica %d rank %d", rank/ranks, rank%ranks)
}

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }
