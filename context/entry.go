package batchctx

import "github.com/weir-ml/weir/internal/frames"

// Entry is the view that a source fills for one microbatch. It follows the rules of a
// [Microbatch]: it ends when the source returns, belongs to the source's goroutine, and its calls
// return no error but end the step. The source owns the buffers that it has allocated and not
// handed over; after a failure a space with memory.Reclaimer frees them.
type Entry[T any] struct {
	frames     *frames.Frames[T]
	generation uint64
}

// NewEntry returns the view of the entry that is being filled, for the runner.
func NewEntry[T any](c *frames.Frames[T]) Entry[T] { return Entry[T]{c, c.Generation()} }

func (e Entry[T]) open() *frames.Frames[T] {
	if e.frames.Generation() != e.generation {
		e.frames.Fail(ErrEnded)
	}
	return e.frames
}

// Index returns the number of the microbatch in the batch, from 0. The runner pulls the entries of
// a rank in this order; of R data-parallel replicas, replica r gets the microbatches r, r+R, and so
// on. Microbatch.Index returns the same number in the stages that read the entry.
func (e Entry[T]) Index() int { return e.open().EntryIndex() }

// Rank returns the rank that the entry is for, counted over all replicas. The source allocates in
// the space of this rank.
func (e Entry[T]) Rank() int { return e.open().Rank() }

// Wants reports whether a stage of this rank reads the part in this step. A source need not make
// other parts.
func (e Entry[T]) Wants(part string) bool {
	wants, _ := e.open().Wants(part)
	return wants
}

// Put hands a part over. It releases a part that this rank does not read at once, so that a
// source may put the same parts on all ranks. A part that no stage of any rank reads fails with
// ErrUnread. After a failure h is released.
func (e Entry[T]) Put(part string, h T) { e.Check(e.open().Put(part, h)) }

// AtMost returns n, or in a dry run the upper bound, as Microbatch.AtMost does.
func (e Entry[T]) AtMost(n, bound int) int { return e.open().AtMost(n, bound) }

// Check ends the step with err, unless it is nil.
func (e Entry[T]) Check(err error) {
	if err != nil {
		e.frames.Fail(err)
	}
}

// Must returns h if err is nil, and otherwise ends the step with err: e.Must(device.Alloc(...)).
func (e Entry[T]) Must(h T, err error) T {
	e.Check(err)
	return h
}
