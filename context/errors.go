package batchctx

import "github.com/weir-ml/weir/internal/engine/frames"

// Errors with which a call on a view, or a check after the call of a stage, ends the step. They are wrapped with the
// part of the location that applies: the stage, the microbatch and the slot.
var (
	// ErrDropped is returned for an entry part after its last read on this rank (L1), and for a copy of
	// weights that the plan has dropped or has not made (L14).
	ErrDropped = frames.ErrDropped
	// ErrUndeclared is returned if a stage uses a slot, a loss, a parameter or a copy of weights that it
	// has not declared, or an entry part that it has not declared for this kind of action, or asks for the
	// seed of a metric.
	ErrUndeclared = frames.ErrUndeclared
	// ErrUnread is returned by Put for a part that no stage on any rank reads.
	ErrUnread = frames.ErrUnread
	// ErrTaken is returned by Take for a slot that was already taken (L2), and by every call for a slot of a
	// microbatch that has ended.
	ErrTaken = frames.ErrTaken
	// ErrUntaken is returned after a backward that did not take a tensor saved for it.
	ErrUntaken = frames.ErrUntaken
	// ErrOffloaded is returned by Take for a slot whose contents are in far memory. The plan must reload
	// them before the action that takes them.
	ErrOffloaded = frames.ErrOffloaded
	// ErrEmpty is returned by Take for a slot that holds nothing.
	ErrEmpty = frames.ErrEmpty
	// ErrOccupied is returned by Save and Put for a place that is in use.
	ErrOccupied = frames.ErrOccupied
	// ErrMisplaced is returned for a call that this kind of action does not allow, such as saving a
	// tensor that no later action can take, or asking for a gradient in a forward.
	ErrMisplaced = frames.ErrMisplaced
	// ErrContribution is returned if a parameter's gradient received more or fewer contributions
	// than the plan and the stage declare (L5), and for a second record of a training loss in a microbatch.
	ErrContribution = frames.ErrContribution
	// ErrMissing is returned if a source or a stage did not hand over a tensor that it declares.
	ErrMissing = frames.ErrMissing
	// ErrClass is returned for a buffer whose memory class is not allowed in its place: an output that is
	// a workspace, for example.
	ErrClass = frames.ErrClass
	// ErrSize is returned for a gradient whose size differs from the size of its input.
	ErrSize = frames.ErrSize
	// ErrChanged is returned under -tags invariants for a tensor that changed although the stages may only
	// read it: an argument, an entry part, a saved tensor, a weight or a copy of one.
	ErrChanged = frames.ErrChanged
	// ErrEnded is returned if a view is used after its call.
	ErrEnded = frames.ErrEnded
	// ErrLeak is returned if the two books differ, or if the counts of buffers differ from the plan's (L6).
	ErrLeak = frames.ErrLeak
)

// LeakError reports a difference between the two books, or between the counts of buffers and the plan's. It
// names the action after which they first differed, and wraps ErrLeak. Its fields are:
//
//	Rank       int
//	Stage      int           // -1 at step end, if the action is unknown
//	Name       string        // of the stage
//	Microbatch int           // its index in the batch
//	Call       schedule.Kind // of the action
//	Class      memory.Class
//	Bytes      int64         // allocator's book minus the step's; 0 if only counts differ
//	What       string        // description of the leaked buffers
type LeakError = frames.LeakError
