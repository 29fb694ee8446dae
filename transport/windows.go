package transport

import "context"

// Windows is an optional ability of a Transport: ranks read memory of each other. The owner
// exposes it, and does nothing else while others read. Ranks of several processes must run on
// hosts with the same byte order.
//
// Any goroutine may make these calls, several at the same time, and beside the calls of the
// rank's own goroutine. They need a step that has begun, and end with it: before the rank calls
// Begin again, each of its calls must have returned. After a rank's Abort has returned, no other
// rank reads its memory.
type Windows interface {
	// Expose lets other ranks read b under a tag until Withdraw, Abort or the next Begin. It does
	// not block. Until then b must not be written or released. A tag is exposed once in a step.
	Expose(tag Tag, b []byte) error
	// Get fills dst with the bytes from an offset on that rank from exposes under a tag, and
	// blocks until it exposes them. The error wraps ErrWindow if the range is not within them, or
	// if they were withdrawn.
	Get(ctx context.Context, from int, tag Tag, offset int64, dst []byte) error
	// Withdraw ends the exposure under a tag. It waits until n bytes in all were read, or, if n is
	// negative, only for reads that have begun. After an error the exposure may go on.
	Withdraw(ctx context.Context, tag Tag, n int64) error
	// Served returns the number of bytes that other ranks have read from this rank in all steps.
	Served() int64
}
