package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner/internal/profile"
)

// ErrUnended is returned by Record for a reference that a stage allocates or retains, but neither
// releases nor hands over.
var ErrUnended = profile.ErrUnended

// Shape is a class of microbatches for which every stage makes the same allocations.
type Shape[T any] struct {
	Name string
	// Source supplies an entry of the class on every call.
	Source Source[T]
}

// Profiled is an optional ability of a stage: it returns its allocations, saved tensors and
// releases for a microbatch of a shape class. Record uses it for stages that allocate outside the
// rank's space, where a dry run cannot see it.
type Profiled interface {
	Profile(shape string) (layout.StageProfile, error)
}

// newRecording returns a runner for one replica's stages and spaces, whose planner plans for all
// replicas of cfg.
func newRecording[T any](cfg Config[T]) (*Runner[T], error) {
	replicas := cfg.Replicas
	cfg.Replicas, cfg.recording = Replicas{Shard: replicas.shard()}, &replicas
	return New(cfg)
}

// Planned returns the memory plan of a training step of m microbatches, as Runner.Prepare does. As
// for Record, cfg contains the stages and spaces of one replica.
func Planned[T any](ctx context.Context, cfg Config[T], m int) (*layout.Memory, error) {
	r, err := newRecording(cfg)
	if err != nil {
		return nil, err
	}
	plan, err := r.Prepare(ctx, m, nil)
	return plan, errors.Join(err, r.Close())
}

// Record records which buffers every stage allocates, keeps and releases, for every shape class. It
// makes each call of each stage once, in a dry run, passing outputs and gradients of the other stages
// as arguments. Build the model a second time for Record, on kernels.Null devices, which compute
// nothing.
//
// The configuration must be the one that will run, with all ranks, except for the stages' devices and
// the spaces. The spaces must implement memory.Watched. If there are several replicas, pass the
// stages and spaces of only one. Values that a stage reads in a dry run are zero: declare a size that
// depends on values with Microbatch.AtMost or Entry.AtMost.
//
// Record returns ErrUnended, with the stage, call and class, for a reference that a stage allocates
// or retains in a call, but neither releases nor hands over by the end of its last call.
func Record[T any](ctx context.Context, cfg Config[T], shapes ...Shape[T]) (*layout.Profile, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if len(shapes) == 0 {
		return nil, errors.New("runner: no shapes to record")
	}
	cfg.Memory.Offload, cfg.Memory.Budget = Offload{}, 0 // they need the profile
	r, err := newRecording(cfg)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	complete := &r.cfg
	if len(cfg.Spaces) != complete.World.Ranks {
		return nil, fmt.Errorf("runner: a dry run with %d of %d spaces: set the spaces of all ranks", len(cfg.Spaces), complete.World.Ranks)
	}
	recorder := profile.Recorder[T]{
		Facts: r.planner.passes.Facts, Copy: complete.World.Copy,
	}
	for _, w := range r.workers {
		watched, ok := w.Space.(memory.Watched[T])
		if !ok {
			return nil, fmt.Errorf("runner: rank %d: a dry run needs a space that is memory.Watched, such as kernels.Null, not %T", w.Rank, w.Space)
		}
		recorder.Ranks, recorder.Spaces = append(recorder.Ranks, &w.Caller), append(recorder.Spaces, watched)
	}
	if complete.Replicas.Shard >= 2 {
		recorder.Whole = func(s int, place effects.Place) error {
			return r.workers[complete.Plan.Placement.Rank[s]].params.makeWhole(place, s)
		}
	}
	recorded := &layout.Profile{
		Parts: slices.Clone(r.workers[0].Parts), Facts: slices.Clone(recorder.Facts), Params: recorder.Params(),
	}
	for _, shape := range shapes {
		if shape.Source == nil {
			return nil, fmt.Errorf("runner: shape %q has no source", shape.Name)
		}
		if err := r.share(shape.Source, 1); err != nil {
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
