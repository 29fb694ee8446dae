package batchctx

import "github.com/weir-ml/weir/internal/frames"

// Entry is what a source fills for one microbatch, by the rules of a [Microbatch]: a value
// that ends when the source returns, for its goroutine, with calls that return no error but
// end the step. Buffers that the source has allocated by then and not handed over are its own: a
// space that reclaims takes it back.
type Entry[T any] struct {
	frames     *frames.Frames[T]
	generation uint64
}

// NewEntry returns the entry that is being filled. It is the runner's.
func NewEntry[T any](c *frames.Frames[T]) Entry[T] { return Entry[T]{c, c.Generation()} }

func (e Entry[T]) open() *frames.Frames[T] {
	if e.frames.Generation() != e.generation {
		e.frames.Fail(ErrEnded)
	}
	return e.frames
}

// Index returns the number of the microbatch in the batch, from 0: a source is asked in
// this order. It is Microbatch.Index of the stages that read the entry.
func (e Entry[T]) Index() int { return e.open().EntryIndex() }

// Rank returns the rank that the entry is for, in whose space the source allocates.
func (e Entry[T]) Rank() int { return e.open().Rank() }

// Wants reports whether a stage of this rank reads the part in this step. A source need
// not make what nobody wants.
func (e Entry[T]) Wants(part string) bool {
	wants, _ := e.open().Wants(part)
	return wants
}

// Put hands a part over. One that this rank does not read is released at once, so that a
// source may put the same parts on all ranks; one that no stage of any rank reads fails
// with ErrUnread. If it fails h is released.
func (e Entry[T]) Put(part string, h T) { e.Check(e.open().Put(part, h)) }

// AtMost returns n, or in a dry run the bound, as Microbatch.AtMost does.
func (e Entry[T]) AtMost(n, bound int) int { return e.open().AtMost(n, bound) }

// Check ends the step with err, unless it is nil.
func (e Entry[T]) Check(err error) {
	if err != nil {
		e.frames.Fail(err)
	}
}

// Must returns h where err is nil, and ends the step with err where it is not:
// e.Must(device.Alloc(...)).
func (e Entry[T]) Must(h T, err error) T {
	e.Check(err)
	return h
}
