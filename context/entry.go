package batchctx

import "github.com/weir-ml/weir/internal/frames"

// Entry is what a source fills for one microbatch. It is a view: it ends when
// the source returns.
type Entry[T any] = frames.Entry[T]
