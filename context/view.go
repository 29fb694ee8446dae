package batchctx

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
)

// view has the code that the methods of a Microbatch and a Quantization share.
type view[T any] struct{ frames.View[T] }

// check ends the call and the step with err, unless err is nil.
func (v view[T]) check(err error) {
	if err != nil {
		v.Call().Frames.Fail(err)
	}
}

// refuse ends the call and the step with err and the subject, formatted with args. The runner adds the location.
func (v view[T]) refuse(err error, subject string, args ...any) {
	v.Call().Frames.Fail(fmt.Errorf("%w: %s", err, fmt.Sprintf(subject, args...)))
}

// index maps a key to the index of one of the stage's declarations, which own contains. It refuses a key that
// is not in own; noun names the declaration in the error.
func (v view[T]) index(noun string, key int, own frames.Range) int {
	i, declared := own.At(key - 1)
	if !declared {
		v.refuse(ErrUndeclared, "%s %d, but the stage declares %d: use the keys of its own Decl", noun, key, own.Count)
	}
	return i
}

// release releases a reference that the stage owns.
func (v view[T]) release(h T) {
	_, err := v.LiveOrFailed().Frames.Config.Space.Release(h)
	if errors.Is(err, memory.ErrNoPlain) {
		err = fmt.Errorf("%w: Release only handles that you have allocated or retained; the step releases borrowed handles", err)
	}
	v.FailOnce(err)
}
