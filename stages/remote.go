package stages

import (
	"context"
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
)

// ErrRemote is returned by every call to a stage that Remote has created.
var ErrRemote = errors.New("stages: the stage is on another rank")

// Remote describes a stage on another rank to a runner whose process does not have the stage: its
// declaration, whether it splits its backward, and its parameters, whose accumulators are ignored. The
// stage cannot be called.
func Remote[T any](spec Spec, splits bool, params []batchctx.Use[T]) Stage[T] {
	refuse := func(call string) Call[T] {
		return func(context.Context, batchctx.Microbatch[T], []T, []T) error {
			return fmt.Errorf("%w: %s of %q", ErrRemote, call, spec.Name)
		}
	}
	f := Func[T]{Declares: spec, Parameters: params, ForwardFunc: refuse("Forward"), BackwardFunc: refuse("Backward")}
	if !splits {
		return &f
	}
	weight := refuse("BackwardWeight")
	return &splitFunc[T]{f, refuse("BackwardInput"), func(ctx context.Context, mb batchctx.Microbatch[T]) error { return weight(ctx, mb, nil, nil) }}
}
