package stagetest

import (
	"context"
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

// visit is a call of the stage, with its arguments and results.
type visit[T any] struct {
	mb          batchctx.Microbatch[T]
	at          batchctx.At // selects the reads that the call may make
	in, gradOut []T
	out, gradIn []T
}

// wrapped is a stage with a function that runs each of its calls.
type wrapped[T any] struct {
	stages.Stage[T]
	spec  stages.Spec // from the time of wrapping
	watch *watch[T]
	visit func(v visit[T], run func() error) error
}

// wrappedSplit is wrapped for a stage that can split its backward.
type wrappedSplit[T any] struct {
	*wrapped[T]
	split stages.SplitBackward[T]
}

// wrap returns the stage with visit around each of its calls. It keeps the optional interfaces.
func (t *trial[T]) wrap(stage stages.Stage[T], visit func(v visit[T], run func() error) error) stages.Stage[T] {
	a := &wrapped[T]{stage, stage.Spec(), t.watch, visit}
	if split, ok := stage.(stages.SplitBackward[T]); ok {
		return &wrappedSplit[T]{a, split}
	}
	return a
}

func (a *wrapped[T]) Unwrap() stages.Stage[T] { return a.Stage }

func (a *wrapped[T]) Spec() stages.Spec { return a.spec }

func (a *wrapped[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	return a.call(visit[T]{mb: mb, at: batchctx.AtForward, in: in, out: out}, func() error { return a.Stage.Forward(ctx, mb, in, out) })
}

func (a *wrapped[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return a.call(visit[T]{mb: mb, at: batchctx.AtBackward | batchctx.AtWeight, gradOut: gradOut, gradIn: gradIn},
		func() error { return a.Stage.Backward(ctx, mb, gradOut, gradIn) })
}

func (a *wrappedSplit[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return a.call(visit[T]{mb: mb, at: batchctx.AtBackward, gradOut: gradOut, gradIn: gradIn},
		func() error { return a.split.BackwardInput(ctx, mb, gradOut, gradIn) })
}

func (a *wrappedSplit[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	return a.call(visit[T]{mb: mb, at: batchctx.AtWeight}, func() error { return a.split.BackwardWeight(ctx, mb) })
}

func (a *wrapped[T]) call(v visit[T], run func() error) error {
	w := a.watch
	w.microbatch = v.mb.Index()
	return a.visit(v, func() error {
		w.inCall = true
		defer func() { w.inCall = false }()
		return run()
	})
}

// probe checks the arguments and results of a stage.
type probe[T any] struct {
	spec    stages.Spec
	trial   *trial[T]
	failed  error // returned by the last call of the stage
	digests map[tensorKey]uint64
}

func (p *probe[T]) reset() {
	p.failed, p.digests = nil, map[tensorKey]uint64{}
}

// errUnwound marks a call that did not return.
var errUnwound = errors.New("stagetest: the call did not return")

// visit checks the borrowed tensors of a call before and after it, and its results.
func (p *probe[T]) visit(v visit[T], run func() error) error {
	arguments := p.borrows(v)
	p.failed = errUnwound
	if p.failed = run(); p.failed != nil {
		return p.failed
	}
	for _, b := range arguments {
		if p.trial.digest(b.handle) != b.before {
			p.trial.fault(b.code, "it changes %s of microbatch %d", b.name, v.mb.Index())
		}
	}
	for i, h := range v.out {
		if none(h) {
			p.trial.fault(UnfilledOutput, "it returns without output %d (%s) of microbatch %d", i, p.spec.Outputs[i].Name, v.mb.Index())
			continue
		}
		p.trial.watch.note(h, asOutput, fmt.Sprintf("its output %d", i))
		p.digests[tensorKey{outputs, v.mb.Index(), i}] = p.trial.digest(h)
	}
	for i, h := range v.gradIn {
		port := p.spec.Inputs[i]
		switch {
		case none(h) && !port.NoGrad:
			p.trial.fault(GradInMissing, "it returns without the gradient of input %d (%s) of microbatch %d", i, port.Name, v.mb.Index())
		case !none(h) && port.NoGrad:
			p.trial.fault(GradInUnwanted, "it returns a gradient of input %d (%s), which is declared NoGrad", i, port.Name)
		case !port.NoGrad:
			p.trial.watch.note(h, asGradient, fmt.Sprintf("its gradIn %d", i))
			p.digests[tensorKey{gradIns, v.mb.Index(), i}] = p.trial.digest(h)
		}
	}
	return nil
}

// borrowed is a tensor that a call borrows.
type borrowed[T any] struct {
	handle T
	name   string
	code   Code // reported for a change
	before uint64
}

// borrows returns the tensors that a call borrows, with digests of their contents. It includes
// the parts that the stage may read in this action.
func (p *probe[T]) borrows(v visit[T]) (all []borrowed[T]) {
	add := func(h T, as role, code Code, name string) {
		p.trial.watch.note(h, as, name)
		all = append(all, borrowed[T]{h, name, code, p.trial.digest(h)})
	}
	for i, h := range v.in {
		add(h, asInput, MutatesInput, fmt.Sprintf("input %d (%s)", i, p.spec.Inputs[i].Name))
	}
	for i, h := range v.gradOut {
		if !p.spec.Outputs[i].NoGrad {
			add(h, asGradient, MutatesGradOut, fmt.Sprintf("gradOut %d (%s)", i, p.spec.Outputs[i].Name))
		}
	}
	for i, read := range p.spec.Reads {
		if read.At&v.at != 0 || read.At == 0 && v.at == batchctx.AtForward {
			add(v.mb.Part(batchctx.Part(i+1)), asPart, MutatesPart, fmt.Sprintf("entry part %q", read.Part))
		}
	}
	return all
}
