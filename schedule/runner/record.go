package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner/internal/profile"
)

// ErrUnended is returned by Record for a reference that nothing ends: one that a stage allocates or
// retains and neither releases nor hands over.
var ErrUnended = profile.ErrUnended

// Shape is a shape class of microbatches: those for which every stage allocates the
// same.
type Shape[T any] struct {
	Name string
	// Source gives an entry of the class as often as it is asked.
	Source Source[T]
}

// Profiled is an optional ability of a stage: to say what it allocates, keeps and
// releases for a microbatch of a shape class. A dry run sees nothing of what it allocates outside
// of the rank's space. Record then takes its word.
type Profiled interface {
	Profile(shape string) (layout.StageProfile, error)
}

// Record finds out what every stage allocates, keeps and releases, for every shape
// class, in a dry run: it calls each stage once for each of its calls, with inputs and
// gradients of its own. Nothing is computed if the spaces are those of
// kernels.Null, which is why a model is made a second time for this, on Null devices.
//
// The configuration is that of all ranks that will run, but for the spaces, which must
// be memory.Watched, and the devices of the stages. Unshard and Reduce, if they are
// set, are called once for each stage. Values read in a dry run are zeros: declare a size that
// depends on values with Microbatch.AtMost or Entry.AtMost.
//
// A reference that a stage allocates or retains in a call, and neither releases nor hands over
// until the end of its last call, is ErrUnended, with stage, call and class.
func Record[T any](ctx context.Context, cfg Config[T], shapes ...Shape[T]) (*layout.Profile, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if len(shapes) == 0 {
		return nil, errors.New("runner: no shapes to record")
	}
	all, err := New(cfg)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	complete := &all.cfg
	if len(cfg.Spaces) != complete.World.Ranks {
		return nil, fmt.Errorf("runner: a dry run of %d of %d ranks: give the spaces of all", len(cfg.Spaces), complete.World.Ranks)
	}
	recorder := profile.Recorder[T]{
		Facts: all.planner.passes.Facts, Copy: complete.World.Copy,
		Gather: complete.Replicas.Unshard, Free: complete.Replicas.Reshard, Reduce: complete.Replicas.Reduce,
	}
	for _, w := range all.workers {
		watched, ok := w.Space.(memory.Watched[T])
		if !ok {
			return nil, fmt.Errorf("runner: rank %d: a dry run needs a space that is memory.Watched, such as that of kernels.Null, and not %T", w.Rank, w.Space)
		}
		recorder.Ranks, recorder.Spaces = append(recorder.Ranks, &w.Caller), append(recorder.Spaces, watched)
	}
	recorded := &layout.Profile{
		Parts: slices.Clone(all.workers[0].Parts), Facts: slices.Clone(recorder.Facts), Params: recorder.Params(),
	}
	for _, shape := range shapes {
		if shape.Source == nil {
			return nil, fmt.Errorf("runner: shape %q has no source", shape.Name)
		}
		if err := all.share(shape.Source); err != nil {
			return nil, fmt.Errorf("runner: shape %q: %w", shape.Name, err)
		}
		stages, err := recorder.Shape(ctx, shape.Name)
		if err != nil {
			return nil, fmt.Errorf("runner: recording shape %q: %w", shape.Name, err)
		}
		recorded.Shapes = append(recorded.Shapes, stages)
	}
	return recorded, nil
}
