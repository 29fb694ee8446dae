package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// Transport moves tensors between one rank and the others. Only the goroutine that runs the rank's steps calls
// it. Handles never cross ranks: the receiver gets copies in buffers of its space (L4).
//
// There is one link for each ordered pair of ranks and each direction of tags, forward or backward. A
// link delivers messages in the order in which they were sent. Once a call has returned an error, the
// step has failed, and the caller must call Abort.
type Transport[T any] interface {
	// Capacity returns the number of messages that a link can hold between send and receipt. 0 means
	// a rendezvous, in which Send returns when the message has been received; schedule.Unlimited
	// means no limit.
	Capacity() int
	// Begin begins a step together with all other ranks. It blocks until all of them have called it,
	// and discards messages left over from an aborted step. hello is a line of text that describes
	// the step; a rank with an empty hello joins any step. If two hellos differ, no step begins, and
	// Begin fails on every rank with the error from SameHello. The caller may reuse the slice after
	// Begin has returned.
	Begin(ctx context.Context, hello []byte) error
	// Send sends h to a rank, and blocks while the link has no room. The caller keeps the buffers,
	// and must not change them until Wait has returned for the same tag. It may reuse the slice after
	// Send has returned.
	Send(ctx context.Context, to int, tag Tag, h []T) error
	// Wait blocks until a rank has received the message with the tag. After that the transport no
	// longer reads the buffers. If no such message was sent, or an earlier Wait has returned for
	// it, Wait returns immediately.
	Wait(ctx context.Context, to int, tag Tag) error
	// Recv blocks until the next message on the link from a rank has arrived, and fills h with
	// handles of class Transfer from the caller's space. The caller owns them, including any that are
	// in h after an error. If the message has a different tag or number of tensors, Recv returns a
	// *TagError, and the link fails on both sides.
	Recv(ctx context.Context, from int, tag Tag, h []T) error
	// Exchange sends mine to all ranks, and returns the bytes from all ranks, in rank order. It is
	// the only collective of a step, and blocks until every rank has called it. It succeeds on all
	// ranks or on none, whenever a context ends, unless a rank dies: in that case some ranks may
	// receive all the bytes while the others get an error.
	//
	// The first Exchange of a step closes the step. Once it has succeeded, all ranks have done the
	// step, and the end of a context does not undo that on any rank: a trainer may exchange more
	// before the next Begin, and these calls do not end with their context.
	Exchange(ctx context.Context, mine []byte) (all [][]byte, err error)
	// Abort ends the step on all ranks: every current and later call, until Begin, returns the cause
	// of the first Abort. After Abort has returned, no other rank reads this rank's buffers. A rank
	// that has closed the step calls it only if it cannot complete its update.
	Abort(cause error)
}

// MaxHello is the maximum length, in bytes, of a hello that transport/tcp accepts in Begin.
const MaxHello = 4 << 10

// SameHello returns nil if the hellos of all ranks are equal, apart from empty ones. Otherwise its
// error wraps ErrRanks and names two ranks and their hellos. It is for implementations of Transport.
func SameHello(hellos [][]byte) error {
	first := -1
	for rank, hello := range hellos {
		switch {
		case len(hello) == 0:
		case first < 0:
			first = rank
		case !bytes.Equal(hello, hellos[first]):
			return diagnostic.Errorf(ErrRanks, "rank %d begins %s, rank %d begins %s: start all processes with the same model, plan, data and checkpoint",
				first, hellos[first], rank, hello)
		}
	}
	return nil
}

// Codec is an optional interface of a Space, to convert tensors to bytes and back. Transports between processes
// require it. kernels.Host implements it.
type Codec[T any] interface {
	// Size returns the number of bytes that Encode writes for h.
	Size(h T) int64
	// Encode writes h. Unlike the methods of a space, it may be called on any goroutine at any time.
	// It does not change the books. Until it returns, h must not be written or released.
	Encode(w io.Writer, h T) error
	// Decode reads size bytes, written by Encode, into a new buffer of class Transfer. The caller
	// owns the buffer. If it fails, the space is unchanged. Only the rank's own goroutine may call
	// it.
	Decode(r io.Reader, size int64) (T, error)
}

// Watcher is an optional interface of a Transport that observes its rank.
type Watcher interface {
	// Runs is called with every action before it runs, and with the action 0 at step end. step is
	// Result.Step.
	Runs(step int64, action schedule.Action)
	// Waited returns the time that this rank's calls have spent blocked since Begin.
	Waited() time.Duration
}

// Content is the kind of tensors that a transfer carries.
type Content uint8

// The possible contents. Use and Total are sent at step end: the rank of the first use of a tied
// parameter adds the accumulators of the other uses to its own, and sends each of them the total.
// Grads, Sums and Weights are not sent: other ranks read them in Windows.
const (
	Output   Content = iota // the outputs of a stage, to the next one
	Gradient                // the gradients of a stage's inputs, to the stage before it
	Use                     // the accumulator of a use of a parameter, to the first use
	Total                   // the sum over all uses, to a use
	Grads                   // the gradient of a use of a parameter, summed over the microbatches of a replica
	Sums                    // the sum of the gradients of all replicas
	Weights                 // the weights of a use of a parameter
)

// Exposed reports whether ranks expose the content in Windows instead of sending it.
func (c Content) Exposed() bool { return c >= Grads && c <= Weights }

// Tag identifies a transfer. On each link, sender and receiver must use the same tags in the same
// order.
type Tag struct {
	Step       int64
	Content    Content
	Stage      int // the sender's stage for Output and Gradient; the stage of the use for all other contents
	Microbatch int // for Output and Gradient
	Param      int // the index of the use in its stage, for all other contents
}

// Backward reports whether the transfer uses the backward link.
func (t Tag) Backward() bool { return t.Content == Gradient || t.Content == Use }

// Sends returns the action that sends the tag's message or exposes its content, or 0 if this happens
// before the first action or at step end.
func (t Tag) Sends() schedule.Action {
	switch t.Content {
	case Grads, Sums:
		return schedule.NewAction(schedule.ReduceGrad, t.Stage, 0)
	case Output:
		return schedule.NewAction(schedule.SendF, t.Stage, t.Microbatch)
	case Gradient:
		return schedule.NewAction(schedule.SendB, t.Stage, t.Microbatch)
	}
	return 0
}

// Receives returns the action that receives the tag's message, or 0 if it is received at step end.
func (t Tag) Receives() schedule.Action {
	switch t.Content {
	case Output:
		return schedule.NewAction(schedule.RecvF, t.Stage+1, t.Microbatch)
	case Gradient:
		return schedule.NewAction(schedule.RecvB, t.Stage-1, t.Microbatch)
	}
	return 0
}

// paramContents holds the formats of the descriptions of contents that belong to a use of a
// parameter.
var paramContents = [...]string{
	Use:     "the use of parameter %d by stage %d in step %d",
	Total:   "the total for parameter %d of stage %d in step %d",
	Grads:   "the gradient of parameter %d of stage %d in step %d",
	Sums:    "the sum of the gradients of parameter %d of stage %d in step %d",
	Weights: "the weights of parameter %d of stage %d in step %d",
}

// String describes the message and names its step.
func (t Tag) String() string {
	if t.Content >= Use && int(t.Content) < len(paramContents) {
		return fmt.Sprintf(paramContents[t.Content], t.Param, t.Stage, t.Step)
	}
	return fmt.Sprintf("%v of step %d", t.Sends(), t.Step)
}
