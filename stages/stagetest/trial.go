package stagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// trial is a subject together with the stages around it.
type trial[T any] struct {
	suite   *suite[T]
	subject Subject[T]
	spec    stages.Spec
	params  []batchctx.Use[T]
	parts   []string
	losses  []loss.Def
	watch   *watch[T]
	space   memory.Space[T]
	probe   *probe[T]           // of the last setting
	sizes   map[tensorKey]int64 // of outputs, in bytes

	where  string // setting and number of microbatches, for messages
	faults int    // number of faults found in this step
}

// setting determines how a trial runs the stage.
type setting[T any] struct {
	name       string // for messages
	rule       schedule.Rule
	group      int
	lookAhead  int
	split      bool // replaces rule with depth first in which the stage runs I and W, each W after lag further I's
	lag        int
	frozenFeed bool // no stage before it trains
	exponent   int  // exponent of the factor of two by which the seeds of losses are multiplied

	decorate func(stages.Stage[T]) stages.Stage[T]    // may be nil
	visit    func(v visit[T], run func() error) error // nil means the probe
	onAction func(action schedule.Action)             // called before every action; may be nil
	onRetire func(microbatch int)                     // called for every retired microbatch; may be nil
	onMake   func(want Want, h T)                     // called for every tensor that the suite makes; may be nil
}

// open makes a new subject, and reports a failure to do so.
func (s *suite[T]) open() (*trial[T], bool) {
	if s.cfg.New == nil {
		s.report(BadConfig, "Config.New is nil")
		return nil, false
	}
	subject, err := s.cfg.New()
	if err != nil {
		s.report(BadConfig, "Config.New fails: %v", err)
		return nil, false
	}
	t := &trial[T]{suite: s, subject: subject, sizes: map[tensorKey]int64{}}
	if err := subject.validate(); err != nil {
		s.report(BadConfig, "%v", err)
		t.end()
		return nil, false
	}
	if subject.Read == nil {
		s.note("Subject.Read is nil: losses were compared, tensors were not")
	}
	t.spec = subject.Stage.Spec()
	t.params = slices.Clone(stages.Params(subject.Stage))
	_, splits := subject.Stage.(stages.SplitBackward[T])
	s.splits = splits && !t.spec.Frozen
	err = t.spec.Validate()
	for _, p := range t.params {
		if t.spec.Frozen && p.Contributes != batchctx.Frozen {
			err = errors.Join(err, fmt.Errorf("stage %q is frozen and its parameter %q is not", t.spec.Name, p.Name))
		}
	}
	if err != nil {
		s.report(BadSpec, "%v", err)
		t.end()
		return nil, false
	}
	t.parts, t.losses = s.cfg.Parts, slices.Clone(s.cfg.Losses)
	if t.parts == nil {
		for _, read := range t.spec.Reads {
			if !slices.Contains(t.parts, read.Part) {
				t.parts = append(t.parts, read.Part)
			}
		}
	}
	objective := func(d loss.Def) bool { return d.Objective }
	if t.losses == nil {
		for _, name := range t.spec.Losses {
			def := loss.Def{Name: name}
			switch {
			case slices.ContainsFunc(t.losses, func(d loss.Def) bool { return d.Name == name }):
				continue
			case slices.Contains(t.spec.Metrics, name):
				def.Metric = true
			case slices.ContainsFunc(t.losses, objective):
				def.Coefficient = furtherCoefficient
			default:
				def.Objective = true
			}
			t.losses = append(t.losses, def)
		}
	}
	if !slices.ContainsFunc(t.losses, objective) && (t.hasFeed() || t.hasSink()) {
		t.losses = append(t.losses, loss.Def{Name: ownLoss, Objective: true})
	}
	t.watch = &watch[T]{Space: subject.Space}
	t.space = t.watch.space()
	return t, true
}

// furtherCoefficient is the coefficient of a stage's trained losses after the first. It is not
// 1, so that a stage that omits it computes wrong gradients.
const furtherCoefficient = 0.375

// ownLoss is the objective if the stage has none.
const ownLoss = "stagetest"

func (t *trial[T]) hasFeed() bool { return len(t.spec.Inputs) > 0 }
func (t *trial[T]) hasSink() bool { return len(t.spec.Outputs) > 0 }

// number returns the number of the stage under test.
func (t *trial[T]) number() int {
	if t.hasFeed() {
		return 1
	}
	return 0
}

// close checks that the declaration has not changed, and closes the subject.
func (t *trial[T]) close() {
	if !reflect.DeepEqual(t.spec, t.subject.Stage.Spec()) {
		t.suite.report(SpecChanges, "its Spec differs after some steps")
	}
	if !sameParams(t.params, stages.Params(t.subject.Stage)) {
		t.suite.report(SpecChanges, "its Params differ after some steps")
	}
	t.end()
}

func (t *trial[T]) end() {
	if t.subject.Close != nil {
		if err := t.subject.Close(); err != nil {
			t.suite.report(BadConfig, "Subject.Close fails: %v", err)
		}
	}
}

func sameParams[T any](a, b []batchctx.Use[T]) bool {
	return slices.EqualFunc(a, b, func(x, y batchctx.Use[T]) bool {
		return x.Name == y.Name && x.Contributes == y.Contributes && (same(x.Grad, y.Grad) || none(x.Grad) && none(y.Grad)) &&
			(same(x.Weight, y.Weight) || none(x.Weight) && none(y.Weight))
	})
}

// fault reports a fault of the current step.
func (t *trial[T]) fault(code Code, format string, args ...any) {
	t.faults++
	t.suite.report(code, "%s (%s)", fmt.Sprintf(format, args...), t.where)
}

// digest returns a hash of the contents of a tensor, or 0 if Subject.Read is nil or fails.
func (t *trial[T]) digest(h T) uint64 {
	if t.subject.Read == nil {
		return 0
	}
	data, err := t.subject.Read(h)
	if errors.Is(err, memory.ErrStale) || errors.Is(err, memory.ErrNone) {
		t.fault(UsesEnded, "it returns a tensor that was released, or releases one that the suite lends it: %v", err)
		return 0
	}
	if err != nil {
		t.fault(BadConfig, "Subject.Read fails: %v", err)
		return 0
	}
	return digestOf(data)
}

// start returns a runner for a setting.
func (t *trial[T]) start(s setting[T]) (*run[T], bool) {
	stage := t.subject.Stage
	if s.decorate != nil {
		stage = s.decorate(stage)
	}
	t.probe = &probe[T]{spec: stage.Spec(), trial: t}
	t.probe.reset()
	visit := t.probe.visit
	if s.visit != nil {
		visit = s.visit
	}
	var chain []stages.Stage[T]
	if t.hasFeed() {
		chain = append(chain, t.feed(s))
	}
	chain = append(chain, t.wrap(stage, visit))
	if t.hasSink() {
		chain = append(chain, t.sink(s))
	}
	if s.split {
		s.rule = SplitRule(schedule.DepthFirst, s.lag, t.number())
	}
	x := &run[T]{trial: t, setting: s}
	hooks := runner.Hooks{Action: x.action}
	if s.onRetire != nil {
		hooks.Microbatch = func(sample *memory.Sample) { s.onRetire(sample.Microbatch) }
	}
	r, err := runner.New(runner.Config[T]{
		Stages: chain, Spaces: runner.Spaces(t.space), Losses: t.losses,
		Gradients: t.subject.Gradients, Hooks: hooks, Seed: 1, ScaleExponent: s.exponent,
		Plan: runner.Plan{Rule: s.rule, Group: s.group, LookAhead: s.lookAhead},
	})
	if err != nil {
		t.suite.report(BadConfig, "no runner accepts the stage: %v", err)
		return nil, false
	}
	x.runner, x.source = r, t.source(s)
	return x, true
}

// make requests a tensor from the subject.
func (t *trial[T]) make(s setting[T], want Want) (T, error) {
	h, err := t.subject.Make(want)
	if err != nil {
		return h, fmt.Errorf("stagetest: Subject.Make of %v %d for microbatch %d: %w", want.Kind, want.Index, want.Microbatch, err)
	}
	if s.onMake != nil {
		s.onMake(want, h)
	}
	return h, nil
}

// source returns a source of the entries.
func (t *trial[T]) source(s setting[T]) runner.Source[T] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[T]) error {
		for part, name := range t.parts {
			if !entry.Wants(name) {
				continue
			}
			h, err := t.make(s, Want{Kind: Part, Index: part, Name: name, Microbatch: entry.Index(), Class: memory.Entry})
			if err != nil {
				return err
			}
			entry.Put(name, h)
		}
		return nil
	})
}

// feed returns the stage before the one under test. It makes the inputs.
func (t *trial[T]) feed(s setting[T]) stages.Stage[T] {
	feed := &stages.Func[T]{
		Declares: stages.Spec{Name: "stagetest feed", Outputs: t.spec.Inputs, Frozen: s.frozenFeed},
		ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, out []T) error {
			for i, port := range t.spec.Inputs {
				h, err := t.make(s, Want{Kind: Input, Index: i, Name: port.Name, Microbatch: mb.Index(), Class: memory.Activation})
				if err != nil {
					return err
				}
				out[i] = h
			}
			return nil
		},
		BackwardFunc: func(context.Context, batchctx.Microbatch[T], []T, []T) error { return nil },
	}
	if !t.hasSink() {
		t.recordObjective(feed)
	}
	return feed
}

// sink returns the stage after the one under test. It makes the gradients of the outputs.
func (t *trial[T]) sink(s setting[T]) stages.Stage[T] {
	sink := &stages.Func[T]{
		Declares: stages.Spec{Name: "stagetest sink", Inputs: t.spec.Outputs},
		ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], in, _ []T) error {
			for i, h := range in {
				t.sizes[tensorKey{outputs, mb.Index(), i}] = t.space.Bytes(h)
			}
			return nil
		},
		BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, gradIn []T) error {
			if gradIn == nil {
				return nil
			}
			for i, port := range t.spec.Outputs {
				if port.NoGrad {
					continue
				}
				h, err := t.make(s, Want{
					Kind: GradOut, Index: i, Name: port.Name, Microbatch: mb.Index(), Class: memory.ActGrad,
					Bytes: t.sizes[tensorKey{outputs, mb.Index(), i}],
				})
				if err != nil {
					return err
				}
				gradIn[i] = h
			}
			return nil
		},
	}
	t.recordObjective(sink)
	return sink
}

// recordObjective makes a stage record the suite's objective, unless the stage under test has
// one.
func (t *trial[T]) recordObjective(stage *stages.Func[T]) {
	if len(t.losses) == 0 || t.losses[len(t.losses)-1].Name != ownLoss {
		return
	}
	forward, backward := stage.ForwardFunc, stage.BackwardFunc
	stage.Declares.Losses = []string{ownLoss}
	stage.ForwardFunc = func(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
		mb.Loss(1, 1, 1)
		return forward(ctx, mb, in, out)
	}
	stage.BackwardFunc = func(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
		mb.LossSeed(1) // the gradients of outputs come from Make
		return backward(ctx, mb, gradOut, gradIn)
	}
}

// resident reports whether a tensor has the lifetime of the model.
func (t *trial[T]) resident(h T) bool { return t.subject.Space.Class(h) == memory.Resident }
