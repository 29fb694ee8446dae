package batchctx

import "github.com/weir-ml/weir/internal/engine/frames"

// Entry is the view through which a source hands over the parts of one microbatch. It follows the rules
// of a [Microbatch]: it ends when the source returns, only the source's goroutine may use it, and a call
// that cannot succeed ends the step instead of returning an error. The source owns the buffers that it
// has allocated and not handed over; after a failure, a space that implements memory.Reclaimer frees
// them.
type Entry[T any] frames.EntryView[T]

// live returns the frames, and fails if the view has ended.
func (e Entry[T]) live() *frames.Frames[T] { return frames.EntryView[T](e).Live() }

// Index returns the number of the microbatch in the batch, counted from 0. Unless runner.InOrder or runner.Config.Audit
// changes the order, the runner asks a rank's source for entries in increasing order of this number, and replica r of R
// data-parallel replicas gets the microbatches r, r+R, and so on. Microbatch.Index returns the same number to the
// stages that read the entry.
func (e Entry[T]) Index() int { return e.live().EntryIndex() }

// Rank returns the rank that the entry is for, counted over all replicas. The source allocates in
// the space of this rank.
func (e Entry[T]) Rank() int { return e.live().Rank() }

// Wants reports whether a stage of this rank reads the part in this step. A source need not make
// other parts.
func (e Entry[T]) Wants(part string) bool {
	wants, _ := e.live().Wants(part)
	return wants
}

// Put hands over a part. A source may put the same parts on all ranks: Put immediately releases a part
// that no stage of this rank reads. Put fails with ErrUnread for a part that no stage on any rank reads, and
// with ErrOccupied for a part that the entry holds already. If Put fails, h is released.
func (e Entry[T]) Put(part string, h T) { e.Check(e.live().Put(part, h)) }

// AtMost returns n or, in a dry run, bound, like Microbatch.AtMost.
func (e Entry[T]) AtMost(n, bound int) int { return e.live().AtMost(n, bound) }

// Check ends the step with err, unless err is nil.
func (e Entry[T]) Check(err error) {
	if err != nil {
		frames.EntryView[T](e).Frames().Fail(err)
	}
}

// Must returns h if err is nil, and otherwise ends the step with err: e.Must(device.Alloc(...)).
func (e Entry[T]) Must(h T, err error) T {
	e.Check(err)
	return h
}
