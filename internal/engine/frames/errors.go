package frames

import (
	"errors"
	"fmt"
)

// Errors returned by the frames and the views. They are wrapped with the stage, microbatch and slot.
var (
	// ErrDropped is returned for an entry part after its last read on this rank (L1), and for a copy of
	// weights that the plan has dropped or has not made (L14).
	ErrDropped = errors.New("batchctx: dropped after its last read")
	// ErrUndeclared is returned if a stage uses a slot, a loss, a parameter or a copy of weights that it
	// has not declared, or an entry part that it has not declared for this kind of action.
	ErrUndeclared = errors.New("batchctx: not declared by the stage")
	// ErrUnread is returned by Put for a part that no stage on any rank reads.
	ErrUnread = errors.New("batchctx: no stage reads it")
	// ErrTaken is returned by Take for a slot that was already taken (L2).
	ErrTaken = errors.New("batchctx: the saved state was taken already")
	// ErrUntaken is returned after a backward that did not take a tensor saved for it.
	ErrUntaken = errors.New("batchctx: saved and never taken")
	// ErrOffloaded is returned for the use of a slot whose contents are in far memory: the plan must
	// reload them before the action that takes them.
	ErrOffloaded = errors.New("batchctx: the saved state is in far memory")
	// ErrEmpty is returned by Take for a slot that holds nothing.
	ErrEmpty = errors.New("batchctx: nothing was saved there")
	// ErrOccupied is returned by Save and Put for a place that already holds a tensor.
	ErrOccupied = errors.New("batchctx: the place is occupied")
	// ErrMisplaced is returned for a call that this kind of action does not allow, such as saving a
	// tensor that no later action can take, or asking for a gradient in a forward.
	ErrMisplaced = errors.New("batchctx: not in this kind of action")
	// ErrContribution is returned if a parameter's gradient received more or fewer contributions
	// than the plan and the stage declare (L5).
	ErrContribution = errors.New("batchctx: wrong number of gradient contributions")
	// ErrMissing is returned if a source or a stage did not hand over a tensor that it declares.
	ErrMissing = errors.New("batchctx: a declared tensor was not handed over")
	// ErrClass is returned for a buffer whose memory class is not allowed in its place.
	ErrClass = errors.New("batchctx: a buffer of another class")
	// ErrSize is returned for a gradient whose size differs from the size of its input.
	ErrSize = errors.New("batchctx: a gradient of another size than its input")
	// ErrChanged is returned under -tags invariants for a tensor that changed although the stages may only
	// read it: an argument, an entry part, a saved tensor, a weight or a copy of one.
	ErrChanged = errors.New("batchctx: a tensor that may only be read has changed")
	// ErrEnded is returned if a view is used after its call.
	ErrEnded = errors.New("batchctx: the view ended with its call: use a Microbatch and an Entry in the call that they were made for")
	// ErrLeak is returned if the two books differ, or if the counts differ from the plan's (L6).
	ErrLeak = errors.New("batchctx: leak")
)

// MissingError names the port for which no tensor was handed over. It wraps ErrMissing and the
// space's error.
type MissingError struct {
	Port int
	Err  error
}

// Error names the port and the cause.
func (e *MissingError) Error() string {
	return fmt.Sprintf("tensor %d: %v: %v", e.Port, ErrMissing, e.Err)
}

// Unwrap returns ErrMissing and Err.
func (e *MissingError) Unwrap() []error { return []error{ErrMissing, e.Err} }
