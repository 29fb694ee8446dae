package runner

import "context"

// Tag names a transfer: the tensors of one microbatch between a stage and the
// next (forward) or the one before (backward). Both sides must come to the same
// tag in the same order on each directed link, or the transport fails both.
type Tag struct {
	Step       int64
	Microbatch int
	Stage      int // the sender's
	Backward   bool
}

// Transport moves tensors between ranks. A handle never crosses a rank: the
// receiver gets buffers of its own space with a copy (L4).
type Transport[T any] interface {
	// Send starts to send h to a rank. The buffers stay the runner's, and unchanged,
	// until Wait of the same tag returns. It may block for room on the link.
	Send(ctx context.Context, to int, tag Tag, h []T) error
	// Wait blocks until the send of the tag no longer reads its buffers.
	Wait(ctx context.Context, tag Tag) error
	// Recv blocks for the transfer of the tag from a rank and fills h with handles
	// of the receiver's space, of class Transfer, which it hands over.
	Recv(ctx context.Context, from int, tag Tag, h []T) error
	// Abort ends every call under way and every later one of this step with cause,
	// on all ranks.
	Abort(cause error)
}
