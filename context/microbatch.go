package batchctx

import "github.com/weir-ml/weir/internal/frames"

// Microbatch is a stage's view of one microbatch for one call. It ends when the
// call returns: never keep it.
type Microbatch[T any] = frames.View[T]

// Entry is what a source fills for one microbatch. It is a view: it ends when
// the source returns.
type Entry[T any] = frames.Entry[T]

// Quantization is a stage's view of a QUANTIZE: the call that makes the step's copies of
// its weights, for no microbatch. It is for the call: never keep it.
type Quantization[T any] = frames.Quantization[T]
