package batchctx

import "github.com/weir-ml/weir/internal/frames"

// Errors of a view's calls. They come wrapped with stage, microbatch and slot.
var (
	// ErrDropped is returned for an entry part after its last read on this rank (L1), and
	// for a copy of weights where the plan has dropped it, or not made it (L14).
	ErrDropped = frames.ErrDropped
	// ErrUndeclared is returned for what a stage reaches without having declared it: a
	// slot, a loss, a parameter, a copy of weights, or an entry part at this kind of action.
	ErrUndeclared = frames.ErrUndeclared
	// ErrUnread is returned by Put for a part that no stage of any rank reads.
	ErrUnread = frames.ErrUnread
	// ErrTaken is returned by Take for a slot that was taken before (L2).
	ErrTaken = frames.ErrTaken
	// ErrUntaken is returned after a backward that has not taken what was saved for it.
	ErrUntaken = frames.ErrUntaken
	// ErrEmpty is returned by Take for a slot that nothing was saved in.
	ErrEmpty = frames.ErrEmpty
	// ErrOccupied is returned by Save and Put for a place that is in use.
	ErrOccupied = frames.ErrOccupied
	// ErrMisplaced is returned for a call that this kind of action does not allow,
	// such as saving where nothing will take, or reaching a gradient in a forward.
	ErrMisplaced = frames.ErrMisplaced
	// ErrContribution is returned when a parameter's gradient was contributed to
	// more or less often than the plan and the stage declare (L5).
	ErrContribution = frames.ErrContribution
	// ErrMissing is returned when a source or a stage did not hand over what it declares.
	ErrMissing = frames.ErrMissing
	// ErrClass is returned for a buffer that is handed over in another class of memory than
	// its place has: an output that is a workspace, say.
	ErrClass = frames.ErrClass
	// ErrSize is returned for a gradient of another size than the input that it is of.
	ErrSize = frames.ErrSize
	// ErrEnded is returned for a view used after the call that it was made for.
	ErrEnded = frames.ErrEnded
	// ErrLeak is returned when the two books or the plan's counts differ (L6).
	ErrLeak = frames.ErrLeak
)

// LeakError says where the books began to differ. It wraps ErrLeak.
type LeakError = frames.LeakError
