package stages

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
)

// Sequential returns one stage that runs stages one after the other, with the same numerical results as
// the separate stages. The tensors between them live only during the call. It can split its backward if
// at least one inner stage trains, and all that train can split theirs: a frozen stage has no W, and
// runs its whole backward in I.
func Sequential[T any](name string, inner ...Stage[T]) (Stage[T], error) {
	if len(inner) == 0 {
		return nil, fmt.Errorf("stages: sequential %q has no stages", name)
	}
	specs, err := specsOf(inner)
	if err != nil {
		return nil, err
	}
	s := &sequential[T]{
		spec:         Spec{Name: name, Inputs: specs[0].Inputs, Outputs: specs[len(specs)-1].Outputs, Frozen: true},
		links:        make([]link[T], len(inner)),
		firstTrained: len(inner),
	}
	splits := true
	for i, stage := range inner {
		spec, params := specs[i], Params(stage)
		link := &s.links[i]
		link.stage, link.frozen = stage, spec.Frozen
		link.split, _ = stage.(SplitBackward[T])
		splits = splits && (link.split != nil || spec.Frozen)
		link.own = batchctx.Access{
			Slots:  batchctx.Range{First: len(s.spec.Slots), Count: len(spec.Slots)},
			Reads:  batchctx.Range{First: len(s.spec.Reads), Count: len(spec.Reads)},
			Losses: batchctx.Range{First: len(s.spec.Losses), Count: len(spec.Losses)},
			Params: batchctx.Range{First: len(s.params), Count: len(params)},
			Copies: batchctx.Range{First: len(s.spec.WeightCopies), Count: len(spec.WeightCopies)},
		}
		link.out = newPassing[T](spec.Outputs, false)
		link.gradIn = newPassing[T](spec.Inputs, true)
		if !spec.Frozen {
			s.firstTrained = min(s.firstTrained, i)
		}
		for _, w := range spec.WeightCopies {
			switch {
			case i < s.firstTrained:
				w.InputOnly = w.At == batchctx.AtBackward
			case i > s.firstTrained: // the gradient of its input is always needed
				w.InputOnly = false
			}
			s.spec.WeightCopies = append(s.spec.WeightCopies, w)
		}
		s.params = append(s.params, params...)
		s.spec.Slots, s.spec.Consumers = append(s.spec.Slots, spec.Slots...), append(s.spec.Consumers, spec.Consumers...)
		for len(s.spec.Consumers) < len(s.spec.Slots) {
			s.spec.Consumers = append(s.spec.Consumers, batchctx.ByBackward)
		}
		s.spec.Reads = append(s.spec.Reads, link.reads(spec.Reads)...)
		s.spec.Losses = append(s.spec.Losses, spec.Losses...)
		s.spec.Metrics = append(s.spec.Metrics, spec.Metrics...)
		s.spec.Frozen = s.spec.Frozen && spec.Frozen
		s.spec.Recomputes = s.spec.Recomputes || spec.Recomputes
	}
	if splits && !s.spec.Frozen {
		return &splitSequential[T]{s}, nil
	}
	return s, nil
}

// specsOf returns the declarations of consecutive stages, and an error with all of their faults.
func specsOf[T any](inner []Stage[T]) ([]Spec, error) {
	specs := make([]Spec, len(inner))
	var faults []error
	for i, stage := range inner {
		if stage == nil {
			faults = append(faults, fmt.Errorf("stages: stage %d is nil", i))
			continue
		}
		specs[i] = stage.Spec()
		faults = append(faults, specs[i].Validate())
		if i > 0 && inner[i-1] != nil {
			faults = append(faults, Joins(&specs[i-1], &specs[i]))
		}
	}
	return specs, errors.Join(faults...)
}

// Joins returns an error unless the outputs of one stage fit the inputs of the next.
func Joins(from, to *Spec) error {
	if len(from.Outputs) != len(to.Inputs) {
		return fmt.Errorf("stages: %q returns %d tensors, but %q takes %d", from.Name, len(from.Outputs), to.Name, len(to.Inputs))
	}
	var faults []error
	for i, out := range from.Outputs {
		if in := to.Inputs[i]; in != out {
			mismatch := fmt.Sprintf("is %q, and input %d of %q is %q: give both the same name", out.Name, i, to.Name, in.Name)
			if in.Name == out.Name {
				mismatch = fmt.Sprintf("and input %d of %q are both %q: set NoGrad for both, or for neither", i, to.Name, in.Name)
			}
			faults = append(faults, fmt.Errorf("stages: output %d of %q %s", i, from.Name, mismatch))
		}
	}
	return errors.Join(faults...)
}

type sequential[T any] struct {
	spec         Spec
	params       []batchctx.Use[T]
	links        []link[T]
	firstTrained int // index of the first stage that trains, or the number of stages; no gradient is needed before it
}

// link is a stage of a sequence, with its share of the sequence's declaration and the tensors
// that it passes to its neighbors within a call.
type link[T any] struct {
	stage  Stage[T]
	split  SplitBackward[T] // nil if the stage cannot split
	frozen bool
	own    batchctx.Access
	out    passing[T]
	gradIn passing[T]
}

func (s *sequential[T]) Spec() Spec                { return s.spec }
func (s *sequential[T]) Params() []batchctx.Use[T] { return s.params }

// enter narrows the access from outer, the access of the sequence, to the link.
func (l *link[T]) enter(mb batchctx.Microbatch[T], outer batchctx.Access) {
	access := outer
	access.Slots = outer.Slots.Sub(l.own.Slots.First, l.own.Slots.Count)
	access.Reads = outer.Reads.Sub(l.own.Reads.First, l.own.Reads.Count)
	access.Losses = outer.Losses.Sub(l.own.Losses.First, l.own.Losses.Count)
	access.Params = outer.Params.Sub(l.own.Params.First, l.own.Params.Count)
	access.Copies = outer.Copies.Sub(l.own.Copies.First, l.own.Copies.Count)
	access.Frozen = outer.Frozen || l.frozen
	mb.SetAccess(access)
}

// reads returns the reads of the link. A frozen link has no W, so it reads in its backward the
// parts that it declares for W.
func (l *link[T]) reads(own []Read) []Read {
	if !l.frozen {
		return own
	}
	reads := slices.Clone(own)
	for i := range reads {
		if reads[i].At&batchctx.AtWeight != 0 {
			reads[i].At = reads[i].At&^batchctx.AtWeight | batchctx.AtBackward
		}
	}
	return reads
}

// QuantizeWeights makes the copies of weights, stage by stage.
func (s *sequential[T]) QuantizeWeights(ctx context.Context, call batchctx.Quantization[T]) error {
	for i := range s.links {
		own := s.links[i].own
		if own.Copies.Count == 0 {
			continue
		}
		quantizer, ok := As[Quantizer[T]](s.links[i].stage)
		if !ok {
			return fmt.Errorf("stages: stage %d of sequence %q declares copies of weights and is not a Quantizer", i, s.spec.Name)
		}
		if err := quantizer.QuantizeWeights(ctx, call.Narrow(own)); err != nil {
			return err
		}
	}
	return nil
}

// Forward runs the stages in order.
func (s *sequential[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	outer := mb.Access()
	defer s.leave(mb, outer)
	last := len(s.links) - 1
	for i := range s.links {
		link := &s.links[i]
		link.enter(mb, outer)
		to := out
		if i < last {
			to = link.out.open()
		}
		if err := link.stage.Forward(ctx, mb, in, to); err != nil {
			return err
		}
		if i < last {
			link.out.hold(mb)
		}
		switch {
		case i == 0:
		case i < last:
			s.links[i-1].out.drop(mb)
		default:
			s.links[i-1].out.dropHolding(mb, out, 0)
		}
		in = to
	}
	return nil
}

// Backward runs the backwards in reverse order.
func (s *sequential[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return s.backward(mb, gradOut, gradIn, func(l *link[T], gradOut, gradIn []T) error {
		return l.stage.Backward(ctx, mb, gradOut, gradIn)
	})
}

func (s *sequential[T]) backward(mb batchctx.Microbatch[T], gradOut, gradIn []T, run func(l *link[T], gradOut, gradIn []T) error) error {
	outer := mb.Access()
	defer s.leave(mb, outer)
	first := 0
	if gradIn == nil { // no gradient is needed before the first stage that trains
		first = min(s.firstTrained, len(s.links)-1)
	}
	for i := len(s.links) - 1; i >= first; i-- {
		link := &s.links[i]
		link.enter(mb, outer)
		to := gradIn
		if i > first {
			to = link.gradIn.open()
		}
		if err := run(link, gradOut, to); err != nil {
			return err
		}
		if i > first {
			link.gradIn.hold(mb)
		}
		switch {
		case i == len(s.links)-1:
		case i > first:
			s.links[i+1].gradIn.drop(mb)
		default:
			s.links[i+1].gradIn.dropHolding(mb, gradIn, link.gradIn.none)
		}
		gradOut = to
	}
	return nil
}

// leave restores the access. After an error or a panic it releases the tensors between the
// stages.
func (s *sequential[T]) leave(mb batchctx.Microbatch[T], outer batchctx.Access) {
	mb.SetAccess(outer)
	for i := range s.links {
		s.links[i].out.abandon(mb)
		s.links[i].gradIn.abandon(mb)
	}
}

type splitSequential[T any] struct{ *sequential[T] }

func (s *splitSequential[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return s.backward(mb, gradOut, gradIn, func(l *link[T], gradOut, gradIn []T) error {
		if l.split == nil { // it is frozen
			return l.stage.Backward(ctx, mb, gradOut, gradIn)
		}
		return l.split.BackwardInput(ctx, mb, gradOut, gradIn)
	})
}

func (s *splitSequential[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	outer := mb.Access()
	defer mb.SetAccess(outer)
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
