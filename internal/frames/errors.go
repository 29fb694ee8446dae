package frames

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory"
)

// Errors of the frames and of the views. They come wrapped with stage, microbatch and slot.
var (
	// ErrDropped is returned for an entry part after its last read on this rank (L1), and
	// for a copy of weights where the plan has dropped it, or not made it (L14).
	ErrDropped = errors.New("batchctx: dropped after its last read")
	// ErrUndeclared is returned for what a stage reaches without having declared it: a
	// slot, a loss, a parameter, a copy of weights, or an entry part at this kind of action.
	ErrUndeclared = errors.New("batchctx: not declared by the stage")
	// ErrUnread is returned by Put for a part that no stage of any rank reads.
	ErrUnread = errors.New("batchctx: no stage reads it")
	// ErrTaken is returned by Take for a slot that was taken before (L2).
	ErrTaken = errors.New("batchctx: the saved state was taken already")
	// ErrUntaken is returned after a backward that has not taken what was saved for it.
	ErrUntaken = errors.New("batchctx: saved and never taken")
	// ErrEmpty is returned by Take for a slot that nothing was saved in.
	ErrEmpty = errors.New("batchctx: nothing was saved there")
	// ErrOccupied is returned by Save and Put for a place that is in use.
	ErrOccupied = errors.New("batchctx: the place is occupied")
	// ErrMisplaced is returned for a call that this kind of action does not allow,
	// such as saving where nothing will take, or reaching a gradient in a forward.
	ErrMisplaced = errors.New("batchctx: not in this kind of action")
	// ErrContribution is returned when a parameter's gradient was contributed to
	// more or less often than the plan and the stage declare (L5).
	ErrContribution = errors.New("batchctx: wrong number of gradient contributions")
	// ErrMissing is returned when a source or a stage did not hand over what it declares.
	ErrMissing = errors.New("batchctx: a declared tensor was not handed over")
	// ErrClass is returned for a buffer that is handed over in another class of memory than
	// its place has.
	ErrClass = errors.New("batchctx: a buffer of another class")
	// ErrSize is returned for a gradient of another size than the input that it is of.
	ErrSize = errors.New("batchctx: a gradient of another size than its input")
	// ErrEnded is returned for a view used after the call that it was made for.
	ErrEnded = errors.New("batchctx: the view ended with its call: use a Microbatch and an Entry in the call that they were made for")
	// ErrLeak is returned when the two books or the plan's counts differ (L6).
	ErrLeak = errors.New("batchctx: leak")
)

// MissingError says which of the tensors that were to be handed over is none. It wraps
// ErrMissing and what the space says.
type MissingError struct {
	Port int
	Err  error
}

// Error says which.
func (e *MissingError) Error() string {
	return fmt.Sprintf("tensor %d: %v: %v", e.Port, ErrMissing, e.Err)
}

// Unwrap returns both.
func (e *MissingError) Unwrap() []error { return []error{ErrMissing, e.Err} }

// LeakError says where the books began to differ. It wraps ErrLeak.
type LeakError struct {
	Rank       int
	Stage      int    // -1 at step end, where no action can be named
	Name       string // the stage's name
	Microbatch int
	Call       Call
	Class      memory.Class
	Bytes      int64  // allocator's book minus the frames'; 0 where only counts differ
	What       string // what is still there, in words
}

// Error says all of it in one line.
func (e *LeakError) Error() string {
	where := "at step end"
	if e.Stage >= 0 {
		where = fmt.Sprintf("stage %d (%s) microbatch %d", e.Stage, e.Name, e.Microbatch)
		if e.Call != None {
			where += " " + e.Call.String()
		}
	}
	return fmt.Sprintf("batchctx: leak: rank %d %s: %d bytes of class %v: %s", e.Rank, where, e.Bytes, e.Class, e.What)
}

// Unwrap returns ErrLeak.
func (e *LeakError) Unwrap() error { return ErrLeak }
