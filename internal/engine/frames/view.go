package frames

// View refers to a call of a stage until the call returns. Package batchctx converts it into the
// Microbatch or the Quantization that the stage receives.
type View[T any] struct {
	call       *StageCall[T]
	generation uint64
}

// View returns the view of the running call.
func (c *StageCall[T]) View() View[T] { return View[T]{c, c.Frames.Generation()} }

// Call returns the call, which may have ended.
func (v View[T]) Call() *StageCall[T] { return v.call }

// Live returns the call. It fails if the view has ended or failed.
func (v View[T]) Live() *StageCall[T] {
	if f := v.call.Frames; f.Generation() != v.generation {
		f.Fail(ErrEnded)
	}
	return v.call
}

// LiveOrFailed returns the call. It fails if the view has ended. It is for the methods that deferred
// calls may use after a failure.
func (v View[T]) LiveOrFailed() *StageCall[T] {
	if f := v.call.Frames; f.Generation() != v.generation && !f.Failed(v.generation) {
		f.Fail(ErrEnded)
	}
	return v.call
}

// FailOnce ends the call and the step with err, unless err is nil or the call has failed already.
func (v View[T]) FailOnce(err error) {
	if f := v.call.Frames; err != nil && !f.Failed(v.generation) {
		f.Fail(err)
	}
}

// EntryView refers to the entry being filled until the source returns. Package batchctx converts it into
// the Entry that the source receives.
type EntryView[T any] struct {
	frames     *Frames[T]
	generation uint64
}

// EntryView returns the view of the entry being filled.
func (c *Frames[T]) EntryView() EntryView[T] { return EntryView[T]{c, c.Generation()} }

// Frames returns the frames of the entry, which may have ended.
func (v EntryView[T]) Frames() *Frames[T] { return v.frames }

// Live returns the frames. It fails if the view has ended.
func (v EntryView[T]) Live() *Frames[T] {
	if v.frames.Generation() != v.generation {
		v.frames.Fail(ErrEnded)
	}
	return v.frames
}

// QuantizationView is the View of a QUANTIZE, with the copies and parameters of the stage, or of a
// decorator's child.
type QuantizationView[T any] struct {
	view           View[T]
	copies, params Range
}

// QuantizationView returns the view of the running QUANTIZE.
func (c *StageCall[T]) QuantizationView() QuantizationView[T] {
	return QuantizationView[T]{c.View(), c.Access.Copies, c.Access.Params}
}

// View returns the view of the call.
func (q QuantizationView[T]) View() View[T] { return q.view }

// Declared returns the copies and the parameters that the view reaches.
func (q QuantizationView[T]) Declared() (copies, params Range) { return q.copies, q.params }

// Narrow returns the view limited to the copies and parameters of a child.
func (q QuantizationView[T]) Narrow(copies, params Range) QuantizationView[T] {
	own := q.view.call.Access
	q.copies = q.copies.Sub(copies.First, copies.Count).Clip(own.Copies)
	q.params = q.params.Sub(params.First, params.Count).Clip(own.Params)
	return q
}
