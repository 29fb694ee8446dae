package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner/internal/profile"
)

// ErrUnended is returned by Record for a reference that is never released: a stage allocates or
// retains it, and neither releases it nor hands it over.
var ErrUnended = profile.ErrUnended

// Shape is a class of microbatches for which every stage makes the same allocations.
type Shape[T any] struct {
	Name string
	// Source gives an entry of the class every time it is asked.
	Source Source[T]
}

// Profiled is an optional ability of a stage: it returns its allocations, saved tensors and
// releases for a microbatch of a shape class. Record uses it for stages that allocate outside the
// rank's space, where a dry run cannot see it.
type Profiled interface {
	Profile(shape string) (layout.StageProfile, error)
}

// newRecording returns a runner of the stages and spaces of one replica, whose planner plans for all.
func newRecording[T any](cfg Config[T]) (*Runner[T], error) {
	replicas := cfg.Replicas
	cfg.Replicas, cfg.recording = Replicas{Shard: replicas.shard()}, &replicas
	return New(cfg)
}

// Planned returns the memory plan of a training step of m microbatches, as Runner.Prepare does. As in
// Record, cfg has the stages and spaces of one replica.
func Planned[T any](ctx context.Context, cfg Config[T], m int) (*layout.Memory, error) {
	all, err := newRecording(cfg)
	if err != nil {
		return nil, err
	}
	plan, err := all.Prepare(ctx, m, nil)
	return plan, errors.Join(err, all.Close())
}

// Record finds out what every stage allocates, keeps and releases, for every shape class. In a
// dry run it makes each call of each stage once, with its own inputs and gradients. On spaces of
// kernels.Null nothing is computed; this is why you build the model a second time for Record, on
// Null devices.
//
// The configuration must equal the one that will run, for all ranks, except for the spaces, which
// must be memory.Watched, and the devices of the stages. Of several replicas, which are equal, give
// the stages and spaces of one. Values read in a dry run are zero: declare a size that depends on
// values with Microbatch.AtMost or Entry.AtMost.
//
// Record returns ErrUnended, with stage, call and class, for a reference that a stage allocates
// or retains in a call, and neither releases nor hands over by the end of its last call.
func Record[T any](ctx context.Context, cfg Config[T], shapes ...Shape[T]) (*layout.Profile, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if len(shapes) == 0 {
		return nil, errors.New("runner: no shapes to record")
	}
	cfg.Memory.Offload = Offload{} // it needs the profile
	all, err := newRecording(cfg)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	complete := &all.cfg
	if len(cfg.Spaces) != complete.World.Ranks {
		return nil, fmt.Errorf("runner: a dry run with %d of %d spaces: set the spaces of all ranks", len(cfg.Spaces), complete.World.Ranks)
	}
	recorder := profile.Recorder[T]{
		Facts: all.planner.passes.Facts, Copy: complete.World.Copy,
	}
	for _, w := range all.workers {
		watched, ok := w.Space.(memory.Watched[T])
		if !ok {
			return nil, fmt.Errorf("runner: rank %d: a dry run needs a space that is memory.Watched, such as kernels.Null, not %T", w.Rank, w.Space)
		}
		recorder.Ranks, recorder.Spaces = append(recorder.Ranks, &w.Caller), append(recorder.Spaces, watched)
	}
	if complete.Replicas.Shard >= 2 {
		recorder.Whole = func(s int, place effects.Place) error {
			return all.workers[complete.Plan.Placement.Rank[s]].whole(place, s)
		}
	}
	recorded := &layout.Profile{
		Parts: slices.Clone(all.workers[0].Parts), Facts: slices.Clone(recorder.Facts), Params: recorder.Params(),
	}
	for _, shape := range shapes {
		if shape.Source == nil {
			return nil, fmt.Errorf("runner: shape %q has no source", shape.Name)
		}
		if err := all.share(shape.Source, 1); err != nil {
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
