package transport

import "context"

// Windows is an optional interface of a Transport that lets ranks read each other's memory. The owner
// only exposes the memory; it takes no part in the reads. If ranks are in several processes, all
// hosts must have the same byte order.
//
// The methods are safe for concurrent use by multiple goroutines, including the rank's own. They may
// be called only after the step has begun, and all calls must have returned before the rank calls
// Begin again. After a rank's Abort has returned, no other rank reads its memory.
type Windows interface {
	// Expose lets other ranks read b under a tag until Withdraw, Abort or the next Begin. Until then
	// b must not be written or released. Expose does not block. A tag can be exposed only once per
	// step.
	Expose(tag Tag, b []byte) error
	// Get fills dst with the bytes that rank from exposes under a tag, starting at offset. It blocks
	// until the rank exposes them. The error wraps ErrWindow if the range is not exposed, or if the
	// bytes were withdrawn.
	Get(ctx context.Context, from int, tag Tag, offset int64, dst []byte) error
	// Withdraw ends the exposure under a tag. It first waits until other ranks have read n bytes in
	// total; if n is negative, it waits only for reads that have begun. After an error the memory may
	// still be exposed.
	Withdraw(ctx context.Context, tag Tag, n int64) error
	// Served returns the number of bytes that other ranks have read from this rank, over all steps.
	Served() int64
}
