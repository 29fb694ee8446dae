package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weir-ml/weir/schedule"
)

// Transport is one rank's way to the others, for the goroutine of its steps. It
// moves tensors between ranks; a handle never crosses a rank: the receiver gets
// buffers of its own space with a copy (L4).
//
// There is one link for each ordered pair of ranks and direction of the tag, forward
// or backward. A link keeps its order: what is sent first is received first. After
// an error of any call the step is over, and Abort ends it.
type Transport[T any] interface {
	// Capacity returns how many messages a link holds that are sent and not yet
	// received: 0 is a rendezvous, where Send returns once the message is received, and
	// schedule.Unlimited is no bound.
	Capacity() int
	// Begin begins a step together with all other ranks: it blocks until each of them
	// has called it, and what an aborted step has left behind is forgotten. Every rank
	// says in hello, a line of text, which step it begins; one with no hello joins any.
	// If two hellos differ no step begins, and Begin fails on every rank with the error
	// of SameHello. The slice is the caller's again when Begin returns.
	Begin(ctx context.Context, hello []byte) error
	// Send sends h to a rank, and blocks while the link has no room. The buffers stay
	// the caller's, and must not change until Wait of the same tag has returned. The
	// slice is the caller's again at once.
	Send(ctx context.Context, to int, tag Tag, h []T) error
	// Wait blocks until what was sent to a rank under the tag has been received. From
	// then on nobody reads the buffers.
	Wait(ctx context.Context, to int, tag Tag) error
	// Recv blocks for the next message of the link from a rank and fills h with handles
	// of the caller's space, of class Transfer, which it hands over, those too that are
	// in h after an error. Where the message has another tag or another number of
	// tensors, it fails on both sides, with a *TagError here.
	Recv(ctx context.Context, from int, tag Tag, h []T) error
	// Exchange hands every rank the bytes of all, by rank: the one collective of a step.
	// It blocks until every rank has called it. Either all ranks get them or none, but
	// for a rank that dies: then some may get them whole, and the others get its error.
	Exchange(ctx context.Context, mine []byte) (all [][]byte, err error)
	// Abort ends the step on all ranks: every call under way and every later one, until
	// Begin, returns the cause, that of the first Abort where there are several. When it
	// returns, nobody reads what this rank has sent.
	Abort(cause error)
}

// MostHello is the most bytes that a rank may say in Begin.
const MostHello = 4 << 10

// SameHello returns nil if all hellos, by rank, are equal, apart from those that are empty. If
// not, its error wraps ErrRanks and names two ranks and their hellos. It is for transports.
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

// Codec is an optional ability of a Space, for transports between processes: how its tensors
// become bytes and back. kernels.Host has it.
type Codec[T any] interface {
	// Size returns how many bytes Encode writes of h.
	Size(h T) int64
	// Encode writes h. Unlike the methods of a space it may be called from any goroutine,
	// whatever the rank does meanwhile; it touches no book. Until it returns nobody writes or
	// releases h.
	Encode(w io.Writer, h T) error
	// Decode reads what Encode has written, so many bytes, into a new buffer of class Transfer,
	// which the caller owns. After an error the space is as it was. It belongs to the
	// goroutine of the rank.
	Decode(r io.Reader, size int64) (T, error)
}

// Watcher is an optional ability of a Transport: to know what its rank does.
type Watcher interface {
	// Runs is told of every action before it runs, and of the action 0 at step end. The step
	// is that of Result.Step.
	Runs(step int64, action schedule.Action)
	// Waited returns for how long calls of this rank have blocked since Begin.
	Waited() time.Duration
}

// Content is what a transfer carries.
type Content uint8

// The contents. Uses and totals belong to step end: uses of a tied parameter are
// added on the rank of the first one, and every other use gets the total.
const (
	Output   Content = iota // the outputs of a stage, to the next one
	Gradient                // the gradients of a stage's inputs, to the one before
	Use                     // the accumulator of a use of a parameter, to the first use
	Total                   // the sum over all uses, to a use
)

// Tag names a transfer. Sender and receiver must come to the same tags in the same
// order on each link.
type Tag struct {
	Step       int64
	Content    Content
	Stage      int // the sender's; of a Use and a Total that of the use
	Microbatch int
	Param      int // of a Use and a Total: the number of the parameter among the stage's
}

// Backward reports whether the transfer is on the backward link.
func (t Tag) Backward() bool { return t.Content == Gradient || t.Content == Use }

// Sends returns the action that sends under the tag, 0 at step end.
func (t Tag) Sends() schedule.Action {
	switch t.Content {
	case Output:
		return schedule.Act(schedule.SendF, t.Stage, t.Microbatch)
	case Gradient:
		return schedule.Act(schedule.SendB, t.Stage, t.Microbatch)
	}
	return 0
}

// Waits returns the action that waits for what is sent under the tag, 0 at step end.
func (t Tag) Waits() schedule.Action {
	switch t.Content {
	case Output:
		return schedule.Act(schedule.WaitF, t.Stage, t.Microbatch)
	case Gradient:
		return schedule.Act(schedule.WaitB, t.Stage, t.Microbatch)
	}
	return 0
}

// Receives returns the action that receives under the tag, 0 at step end.
func (t Tag) Receives() schedule.Action {
	switch t.Content {
	case Output:
		return schedule.Act(schedule.RecvF, t.Stage+1, t.Microbatch)
	case Gradient:
		return schedule.Act(schedule.RecvB, t.Stage-1, t.Microbatch)
	}
	return 0
}

// String says what is sent: the action, and the step.
func (t Tag) String() string {
	switch t.Content {
	case Use:
		return fmt.Sprintf("the use of parameter %d by stage %d in step %d", t.Param, t.Stage, t.Step)
	case Total:
		return fmt.Sprintf("the total for parameter %d of stage %d in step %d", t.Param, t.Stage, t.Step)
	}
	return fmt.Sprintf("%v of step %d", t.Sends(), t.Step)
}
