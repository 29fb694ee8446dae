package record

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
)

// ErrUnended is returned by Stages for a reference that a stage allocates or retains, but neither
// releases nor hands over.
var ErrUnended = errors.New("record: nothing ends a reference")

// Shape is a class of microbatches for which every stage makes the same allocations.
type Shape[T any] struct {
	Name string
	// Source supplies an entry of the class on every call.
	Source runner.Source[T]
}

// Profiled is an optional interface of a stage: it returns its allocations, saved tensors and
// releases for a microbatch of a shape class. Stages uses it for stages that allocate outside the
// rank's space, where a dry run cannot see it.
type Profiled interface {
	Profile(shape string) (layout.StageProfile, error)
}

// Stages records which buffers every stage allocates, keeps and releases, for every shape class. It
// makes every kind of call of each stage in a dry run, passing outputs and gradients of the other stages
// as arguments. Build the model a second time for Stages, on kernels.Null devices, which compute
// nothing.
//
// The configuration must be the one that will run, with all ranks, except for the stages' devices and
// the spaces. The spaces must implement memory.Watched. If there are several replicas, pass the
// stages and spaces of only one. Values that a stage reads in a dry run are zero: declare a size that
// depends on values with Microbatch.AtMost or Entry.AtMost.
//
// Stages returns ErrUnended, with the stage, call and class, for a reference that a stage allocates
// or retains in a call, but neither releases nor hands over by the end of its last call.
func Stages[T any](ctx context.Context, cfg runner.Config[T], shapes ...Shape[T]) (*layout.Profile, error) {
	if ctx == nil {
		return nil, errors.New("record: the context is nil: pass context.Background() if there is no other")
	}
	if len(shapes) == 0 {
		return nil, errors.New("record: no shapes to record")
	}
	cfg.Memory.Offload, cfg.Memory.Budget = runner.Offload{}, 0 // they need the profile
	run, err := runner.NewDry(cfg)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	r := recorder[T]{dry: run.Dry()}
	first := r.dry.Ranks[0]
	if ranks := first.Placement.Ranks; len(r.dry.Ranks) != ranks {
		return nil, fmt.Errorf("record: a dry run with %d of %d spaces: set the spaces of all ranks", len(r.dry.Ranks), ranks)
	}
	for _, rank := range r.dry.Ranks {
		watched, ok := rank.Space.(memory.Watched[T])
		if !ok {
			return nil, fmt.Errorf("record: rank %d: a dry run needs a space that is memory.Watched, such as kernels.Null, not %T", rank.Rank, rank.Space)
		}
		r.spaces = append(r.spaces, watched)
	}
	profile := &layout.Profile{Parts: slices.Clone(first.Parts), StageInfo: slices.Clone(r.dry.StageInfo), Params: r.params()}
	for _, shape := range shapes {
		if shape.Source == nil {
			return nil, fmt.Errorf("record: shape %q has no source", shape.Name)
		}
		if err := r.dry.SetSource(shape.Source); err != nil {
			return nil, fmt.Errorf("record: shape %q: %w", shape.Name, err)
		}
		recorded, err := r.shape(ctx, shape.Name)
		if err != nil {
			return nil, fmt.Errorf("record: shape %q: %w", shape.Name, err)
		}
		profile.Shapes = append(profile.Shapes, recorded)
	}
	return profile, nil
}
