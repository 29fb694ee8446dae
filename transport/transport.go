package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weir-ml/weir/schedule"
)

// Transport connects one rank to the others, for the goroutine of its steps. It moves tensors
// between ranks. Handles never cross ranks: the receiver gets copies in buffers of its own space
// (L4).
//
// There is one link for each ordered pair of ranks and each direction of tags, forward or
// backward. A link delivers messages in the order of sending. After an error of any call the step
// is over, and Abort ends it.
type Transport[T any] interface {
	// Capacity returns the number of messages that a link holds between send and receipt: 0 is a
	// rendezvous, where Send returns once the message is received, and schedule.Unlimited has no
	// limit.
	Capacity() int
	// Begin begins a step together with all other ranks. It blocks until each of them has called
	// it, and discards messages of an aborted step. hello is a line of text that describes the
	// step; a rank with an empty hello joins any step. If two hellos differ no step begins, and
	// Begin fails on every rank with the error of SameHello. The caller may reuse the slice when
	// Begin returns.
	Begin(ctx context.Context, hello []byte) error
	// Send sends h to a rank, and blocks while the link has no room. The caller keeps the
	// buffers, and must not change them until Wait of the same tag has returned. It may reuse the
	// slice at once.
	Send(ctx context.Context, to int, tag Tag, h []T) error
	// Wait blocks until a rank has received the message with the tag. From then on the transport
	// does not read the buffers.
	Wait(ctx context.Context, to int, tag Tag) error
	// Recv blocks until the next message of the link from a rank arrives, and fills h with
	// handles of the caller's space, of class Transfer. The caller owns them, also handles that
	// are in h after an error. If the message has another tag or another number of tensors, it
	// fails on both sides, with a *TagError here.
	Recv(ctx context.Context, from int, tag Tag, h []T) error
	// Exchange sends every rank the bytes of all, by rank: the one collective of a step. It
	// blocks until every rank has called it. Either all ranks receive them or none, except if a
	// rank dies: then some may receive all bytes, and the others get its error.
	Exchange(ctx context.Context, mine []byte) (all [][]byte, err error)
	// Abort ends the step on all ranks: every current and later call, until Begin, returns the
	// cause of the first Abort. After Abort returns, no other rank reads this rank's buffers.
	Abort(cause error)
}

// MostHello is the maximum number of bytes of a hello.
const MostHello = 4 << 10

// SameHello returns nil if all hellos, by rank, are equal, ignoring empty ones. Otherwise its
// error wraps ErrRanks and names two ranks and their hellos. Implementations of Transport use it.
func SameHello(hellos [][]byte) error {
	first := -1
	for rank, hello := range hellos {
		switch {
		case len(hello) == 0:
		case first < 0:
			first = rank
		case !bytes.Equal(hello, hellos[first]):
			return fmt.Errorf("%w: rank %d begins %s, rank %d begins %s: start all processes with the same model, plan, data and checkpoint",
				ErrRanks, first, hellos[first], rank, hello)
		}
	}
	return nil
}

// Codec is an optional ability of a Space, for transports between processes: it converts tensors
// to bytes and back. kernels.Host implements it.
type Codec[T any] interface {
	// Size returns the number of bytes that Encode writes of h.
	Size(h T) int64
	// Encode writes h. Unlike the methods of a space, it may be called from any goroutine at any
	// time, and does not change the books. Until it returns, h must not be written or released.
	Encode(w io.Writer, h T) error
	// Decode reads size bytes written by Encode into a new buffer of class Transfer, which the
	// caller owns. After an error the space is unchanged. Only the goroutine of the rank may call
	// it.
	Decode(r io.Reader, size int64) (T, error)
}

// Watcher is an optional ability of a Transport: it observes its rank.
type Watcher interface {
	// Runs is called with every action before it runs, and with the action 0 at step end. step is
	// Result.Step.
	Runs(step int64, action schedule.Action)
	// Waited returns how long calls of this rank have blocked since Begin.
	Waited() time.Duration
}

// Content is the kind of tensors that a transfer carries.
type Content uint8

// The contents. Uses and totals are transferred at step end: uses of a tied parameter are added
// on the rank of the first one, and every other use receives the total. Other ranks read the
// contents from Grads on in Windows.
const (
	Output   Content = iota // the outputs of a stage, to the next one
	Gradient                // the gradients of a stage's inputs, to the one before
	Use                     // the accumulator of a use of a parameter, to the first use
	Total                   // the sum over all uses, to a use
	Grads                   // the gradient of a use of a parameter, summed over the microbatches of a replica
	Sums                    // the sum of the gradients of all replicas
	Weights                 // the weights of a use of a parameter
)

// Exposed reports whether ranks expose the content in Windows, and do not send it.
func (c Content) Exposed() bool { return c >= Grads && c <= Weights }

// Tag identifies a transfer. Sender and receiver must use the same tags in the same order on each
// link.
type Tag struct {
	Step       int64
	Content    Content
	Stage      int // the sender's; from Use on the stage of the use
	Microbatch int
	Param      int // from Use on: the index of the parameter in the stage
}

// Backward reports whether the transfer is on the backward link.
func (t Tag) Backward() bool { return t.Content == Gradient || t.Content == Use }

// Sends returns the action that sends the message with the tag or exposes the content, or 0 at
// step end and before the first action.
func (t Tag) Sends() schedule.Action {
	switch t.Content {
	case Grads, Sums:
		return schedule.Act(schedule.ReduceGrad, t.Stage, 0)
	case Output:
		return schedule.Act(schedule.SendF, t.Stage, t.Microbatch)
	case Gradient:
		return schedule.Act(schedule.SendB, t.Stage, t.Microbatch)
	}
	return 0
}

// Receives returns the action that receives the message with the tag, or 0 at step end.
func (t Tag) Receives() schedule.Action {
	switch t.Content {
	case Output:
		return schedule.Act(schedule.RecvF, t.Stage+1, t.Microbatch)
	case Gradient:
		return schedule.Act(schedule.RecvB, t.Stage-1, t.Microbatch)
	}
	return 0
}

// atStepEnd describes the contents of a parameter and a stage.
var atStepEnd = [...]string{
	Use:     "the use of parameter %d by stage %d in step %d",
	Total:   "the total for parameter %d of stage %d in step %d",
	Grads:   "the gradient of parameter %d of stage %d in step %d",
	Sums:    "the sum of the gradients of parameter %d of stage %d in step %d",
	Weights: "the weights of parameter %d of stage %d in step %d",
}

// String describes the message: the action and the step.
func (t Tag) String() string {
	if t.Content >= Use && int(t.Content) < len(atStepEnd) {
		return fmt.Sprintf(atStepEnd[t.Content], t.Param, t.Stage, t.Step)
	}
	return fmt.Sprintf("%v of step %d", t.Sends(), t.Step)
}
