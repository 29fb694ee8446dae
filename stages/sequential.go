package stages

import (
	"context"
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
)

// Sequential returns one stage that runs stages one after the other. Its numbers
// are those of the stages run apart. What passes between them lives within the
// call. It can split its backward where all of its stages can.
func Sequential[T any](name string, inner ...Stage[T]) (Stage[T], error) {
	if len(inner) == 0 {
		return nil, fmt.Errorf("stages: sequential %q has no stages", name)
	}
	s := &sequential[T]{spec: Spec{Name: name, Frozen: true}, links: make([]link[T], len(inner)), firstTrained: len(inner)}
	var faults []error
	splits := true
	for i, stage := range inner {
		spec := stage.Spec()
		link := &s.links[i]
		link.stage = stage
		link.offset = batchctx.Scope{
			Slots: s.spec.Slots, Reads: len(s.spec.Reads), Losses: len(s.spec.Losses), Params: len(s.params),
		}
		link.out = make([]T, len(spec.Outputs))
		link.gradIn = make([]T, len(spec.Inputs))
		for p, port := range spec.Inputs {
			if port.NoGrad {
				link.noGradIn |= 1 << p
			}
		}
		link.split, _ = stage.(SplitBackward[T])
		link.frozen = spec.Frozen
		splits = splits && link.split != nil
		if i > 0 {
			before := inner[i-1].Spec()
			if err := Joins(&before, &spec); err != nil {
				faults = append(faults, err)
			}
		}
		params := Params(stage)
		if !spec.Frozen && s.firstTrained == len(inner) {
			s.firstTrained = i
		}
		s.params = append(s.params, params...)
		s.spec.Slots += spec.Slots
		s.spec.Reads = append(s.spec.Reads, spec.Reads...)
		s.spec.Losses = append(s.spec.Losses, spec.Losses...)
		s.spec.Frozen = s.spec.Frozen && spec.Frozen
		s.spec.Recomputes = s.spec.Recomputes || spec.Recomputes
		if i == 0 {
			s.spec.Inputs = spec.Inputs
		}
		s.spec.Outputs = spec.Outputs
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if splits {
		return &splitSequential[T]{s}, nil
	}
	return s, nil
}

// Joins reports whether the outputs of one stage fit the inputs of the next.
func Joins(from, to *Spec) error {
	if len(from.Outputs) != len(to.Inputs) {
		return fmt.Errorf("stages: %q returns %d tensors and %q takes %d", from.Name, len(from.Outputs), to.Name, len(to.Inputs))
	}
	var faults []error
	for i, out := range from.Outputs {
		if in := to.Inputs[i]; in != out {
			faults = append(faults, fmt.Errorf("stages: output %d of %q is %+v and input %d of %q is %+v", i, from.Name, out, i, to.Name, in))
		}
	}
	return errors.Join(faults...)
}

type sequential[T any] struct {
	spec         Spec
	params       []batchctx.Param[T]
	links        []link[T]
	firstTrained int // the first stage that trains; before it nothing needs a gradient
}

// link is one stage of a sequence, where its things begin, and scratch of one call.
type link[T any] struct {
	stage    Stage[T]
	split    SplitBackward[T]
	frozen   bool
	offset   batchctx.Scope
	noGradIn uint64
	out      []T
	gradIn   []T
}

func (s *sequential[T]) Spec() Spec                  { return s.spec }
func (s *sequential[T]) Params() []batchctx.Param[T] { return s.params }

// enter sets the scope of a link within outer.
func (l *link[T]) enter(mb *batchctx.Microbatch[T], outer batchctx.Scope) {
	scope := outer
	scope.Slots += l.offset.Slots
	scope.Reads += l.offset.Reads
	scope.Losses += l.offset.Losses
	scope.Params += l.offset.Params
	mb.SetScope(scope)
}

// Forward runs the stages in order.
func (s *sequential[T]) Forward(ctx context.Context, mb *batchctx.Microbatch[T], in, out []T) error {
	outer, whole := mb.Scope(), false
	defer func() { s.leave(mb, outer, whole) }()
	for i := range s.links {
		link := &s.links[i]
		link.enter(mb, outer)
		to := link.out
		if i == len(s.links)-1 {
			to = out
		}
		if err := link.stage.Forward(ctx, mb, in, to); err != nil {
			return err
		}
		if i > 0 {
			if err := release(mb, in, 0); err != nil {
				return err
			}
		}
		in = to
	}
	whole = true
	return nil
}

// Backward runs the backwards in reverse order.
func (s *sequential[T]) Backward(ctx context.Context, mb *batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return s.backward(mb, gradOut, gradIn, func(l *link[T], gradOut, gradIn []T) error {
		return l.stage.Backward(ctx, mb, gradOut, gradIn)
	})
}

func (s *sequential[T]) backward(mb *batchctx.Microbatch[T], gradOut, gradIn []T, run func(l *link[T], gradOut, gradIn []T) error) error {
	outer, whole := mb.Scope(), false
	defer func() { s.leave(mb, outer, whole) }()
	first := 0
	if gradIn == nil {
		first = s.firstTrained
	}
	for i := len(s.links) - 1; i >= first; i-- {
		link := &s.links[i]
		link.enter(mb, outer)
		to := link.gradIn
		if i == 0 {
			to = gradIn
		} else if gradIn == nil && i == first {
			to = nil
		}
		if err := run(link, gradOut, to); err != nil {
			return err
		}
		if i < len(s.links)-1 {
			if err := release(mb, gradOut, s.links[i+1].noGradIn); err != nil {
				return err
			}
		}
		gradOut = to
	}
	whole = true
	return nil
}

// leave restores the scope. After an error or a panic it ends what was on its
// way between two stages.
func (s *sequential[T]) leave(mb *batchctx.Microbatch[T], outer batchctx.Scope, whole bool) {
	mb.SetScope(outer)
	if whole {
		return
	}
	for i := range s.links {
		abandon(mb, s.links[i].out)
		abandon(mb, s.links[i].gradIn)
	}
}

// release ends what passed between two stages.
func release[T any](mb *batchctx.Microbatch[T], h []T, none uint64) error {
	var zero T
	for i := range h {
		if none>>i&1 == 0 {
			if err := mb.Release(h[i]); err != nil {
				return err
			}
		}
		h[i] = zero
	}
	return nil
}

// abandon ends whatever a failed call has left in h.
func abandon[T any](mb *batchctx.Microbatch[T], h []T) {
	for i := range h {
		_ = mb.Release(h[i]) // most are none, which Release refuses
	}
	clear(h)
}

type splitSequential[T any] struct{ *sequential[T] }

func (s *splitSequential[T]) BackwardInput(ctx context.Context, mb *batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return s.backward(mb, gradOut, gradIn, func(l *link[T], gradOut, gradIn []T) error {
		return l.split.BackwardInput(ctx, mb, gradOut, gradIn)
	})
}

func (s *splitSequential[T]) BackwardWeight(ctx context.Context, mb *batchctx.Microbatch[T]) error {
	outer := mb.Scope()
	defer mb.SetScope(outer)
	for i := len(s.links) - 1; i >= 0; i-- {
		if s.links[i].frozen {
			continue
		}
		s.links[i].enter(mb, outer)
		if err := s.links[i].split.BackwardWeight(ctx, mb); err != nil {
			return err
		}
	}
	return nil
}
