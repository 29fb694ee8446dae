package transport

import "context"

// Windows is an optional ability of a Transport with which ranks read memory of each other. The
// owner only exposes the memory; it takes no part in the reads. Ranks of several processes must run
// on hosts with the same byte order.
//
// Any goroutine may make these calls, concurrently with others and with the rank's own goroutine.
// They need a step that has begun, and all of them must have returned before the rank calls Begin
// again. When a rank's Abort has returned, no other rank reads its memory.
type Windows interface {
	// Expose lets other ranks read b under a tag until Withdraw, Abort or the next Begin. Until then
	// b must not be written or released. Expose does not block. A tag is exposed once in a step.
	Expose(tag Tag, b []byte) error
	// Get fills dst with bytes that rank from exposes under a tag, beginning at offset. It blocks
	// until the rank exposes them. The error wraps ErrWindow if the range is not exposed, or if the
	// bytes were withdrawn.
	Get(ctx context.Context, from int, tag Tag, offset int64, dst []byte) error
	// Withdraw ends the exposure under a tag. It first waits until other ranks have read n bytes in
	// total; if n is negative, it waits only for reads that have begun. After an error the memory may
	// still be exposed.
	Withdraw(ctx context.Context, tag Tag, n int64) error
	// Served returns the number of bytes that other ranks have read from this rank in all steps.
	Served() int64
}
