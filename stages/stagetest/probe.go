package stagetest

import (
	"context"
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

// probe stands around the stage under test and looks at what goes in and out.
type probe[T any] struct {
	stage stages.Stage[T]
	spec  stages.Spec
	trial *trial[T]

	failed  error // what the last call of the stage returned
	digests map[place]uint64
}

// splitProbe is a probe of a stage that can split its backward.
type splitProbe[T any] struct {
	*probe[T]
	split stages.SplitBackward[T]
}

// wrapped returns the probe as a stage that can what the probed one can.
func (p *probe[T]) wrapped() stages.Stage[T] {
	if split, ok := p.stage.(stages.SplitBackward[T]); ok {
		return &splitProbe[T]{p, split}
	}
	return p
}

func (p *probe[T]) reset() {
	p.failed, p.digests = nil, map[place]uint64{}
}

func (p *probe[T]) Unwrap() stages.Stage[T] { return p.stage }

func (p *probe[T]) Spec() stages.Spec { return p.spec }

func (p *probe[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	look := p.look(mb, batchctx.AtForward, in, nil)
	err := p.call(mb, func() error { return p.stage.Forward(ctx, mb, in, out) })
	if err != nil {
		return err
	}
	look.again()
	for i, h := range out {
		if none(h) {
			p.trial.fault(UnfilledOutput, "it returns without output %d (%s) of microbatch %d", i, p.spec.Outputs[i].Name, mb.Index())
			continue
		}
		p.trial.watch.note(h, asOutput, fmt.Sprintf("its output %d", i))
		p.digests[place{outputs, mb.Index(), i}] = p.trial.digest(h)
	}
	return nil
}

func (p *probe[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return p.backward(mb, batchctx.AtBackward|batchctx.AtWeight, gradOut, gradIn, func() error { return p.stage.Backward(ctx, mb, gradOut, gradIn) })
}

func (p *splitProbe[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return p.backward(mb, batchctx.AtBackward, gradOut, gradIn, func() error { return p.split.BackwardInput(ctx, mb, gradOut, gradIn) })
}

func (p *splitProbe[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	look := p.look(mb, batchctx.AtWeight, nil, nil)
	err := p.call(mb, func() error { return p.split.BackwardWeight(ctx, mb) })
	if err == nil {
		look.again()
	}
	return err
}

func (p *probe[T]) backward(mb batchctx.Microbatch[T], at batchctx.At, gradOut, gradIn []T, run func() error) error {
	look := p.look(mb, at, nil, gradOut)
	if err := p.call(mb, run); err != nil {
		return err
	}
	look.again()
	for i, h := range gradIn {
		port := p.spec.Inputs[i]
		switch {
		case none(h) && !port.NoGrad:
			p.trial.fault(GradInMissing, "it returns without the gradient of input %d (%s) of microbatch %d", i, port.Name, mb.Index())
		case !none(h) && port.NoGrad:
			p.trial.fault(GradInUnwanted, "it returns a gradient of input %d (%s), which is declared NoGrad", i, port.Name)
		case !port.NoGrad:
			p.trial.watch.note(h, asGradient, fmt.Sprintf("its gradIn %d", i))
			p.digests[place{gradIns, mb.Index(), i}] = p.trial.digest(h)
		}
	}
	return nil
}

// errUnwound stands for the error of a call that did not return.
var errUnwound = errors.New("stagetest: the call did not return")

// call runs one call of the stage.
func (p *probe[T]) call(mb batchctx.Microbatch[T], run func() error) error {
	w := p.trial.watch
	w.inCall, w.microbatch = true, mb.Index()
	p.failed = errUnwound
	defer func() { w.inCall = false }()
	p.failed = run()
	return p.failed
}

// look is what a call borrows, and its content before the call.
type look[T any] struct {
	probe      *probe[T]
	microbatch int
	borrowed   []borrowed[T]
}

type borrowed[T any] struct {
	handle T
	what   string
	code   Code // of a change
	before uint64
}

// look looks at what a call borrows. The parts are those that the stage may read
// in this action.
func (p *probe[T]) look(mb batchctx.Microbatch[T], at batchctx.At, in, gradOut []T) *look[T] {
	l := &look[T]{probe: p, microbatch: mb.Index()}
	p.trial.watch.microbatch = mb.Index()
	for i, h := range in {
		l.add(h, asInput, MutatesInput, fmt.Sprintf("input %d (%s)", i, p.spec.Inputs[i].Name))
	}
	for i, h := range gradOut {
		if !p.spec.Outputs[i].NoGrad {
			l.add(h, asGradient, MutatesGradOut, fmt.Sprintf("gradOut %d (%s)", i, p.spec.Outputs[i].Name))
		}
	}
	for i, read := range p.spec.Reads {
		if read.At&at != 0 || read.At == 0 && at == batchctx.AtForward {
			l.add(mb.Part(batchctx.Part(i+1)), asPart, MutatesPart, fmt.Sprintf("entry part %q", read.Part))
		}
	}
	return l
}

func (l *look[T]) add(h T, as role, code Code, what string) {
	l.probe.trial.watch.note(h, as, what)
	l.borrowed = append(l.borrowed, borrowed[T]{h, what, code, l.probe.trial.digest(h)})
}

// again looks once more, after the call.
func (l *look[T]) again() {
	for _, b := range l.borrowed {
		if l.probe.trial.digest(b.handle) != b.before {
			l.probe.trial.fault(b.code, "it changes %s of microbatch %d", b.what, l.microbatch)
		}
	}
}
