package stagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// trial is a subject, with the stages around it.
type trial[T any] struct {
	suite   *suite[T]
	subject Subject[T]
	spec    stages.Spec
	params  []batchctx.Use[T]
	parts   []string
	losses  []loss.Def
	watch   *watch[T]
	space   memory.Space[T]
	probe   *probe[T]       // of the last setting
	sizes   map[place]int64 // of outputs, in bytes

	where  string // setting and number of microbatches, for messages
	faults int    // number found in this step
}

// setting determines how a trial runs the stage.
type setting[T any] struct {
	name       string // for messages
	rule       schedule.Rule
	group      int
	lookAhead  int
	apart      bool // I and W of the stage, in place of the rule, with each W lag I's later
	lag        int
	frozenFeed bool // nothing before the stage trains
	exponent   int  // of the seeds of losses

	decorate func(stages.Stage[T]) stages.Stage[T]    // nil leaves the stage as it is
	visit    func(v visit[T], run func() error) error // replaces the probe; nil means the probe
	before   func(action schedule.Action)             // called for every action; may be nil
	retired  func(microbatch int)                     // called for every microbatch; may be nil
	made     func(want Want, h T)                     // called for every tensor that the suite makes; may be nil
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
	t := &trial[T]{suite: s, subject: subject, sizes: map[place]int64{}}
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

// furtherCoefficient is the coefficient of a stage's trained losses except the first: not 1, so
// that a stage that omits it has other gradients.
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
	if !sameSpec(t.spec, t.subject.Stage.Spec()) {
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

func sameSpec(a, b stages.Spec) bool {
	return a.Name == b.Name && slices.Equal(a.Inputs, b.Inputs) && slices.Equal(a.Outputs, b.Outputs) &&
		slices.Equal(a.Reads, b.Reads) && slices.Equal(a.Slots, b.Slots) && slices.Equal(a.Losses, b.Losses) && slices.Equal(a.Metrics, b.Metrics) &&
		slices.Equal(a.WeightCopies, b.WeightCopies) && a.Frozen == b.Frozen && a.Recomputes == b.Recomputes
}

func sameParams[T any](a, b []batchctx.Use[T]) bool {
	return slices.EqualFunc(a, b, func(x, y batchctx.Use[T]) bool {
		return x.Name == y.Name && x.Contributes == y.Contributes && (same(x.Grad, y.Grad) || none(x.Grad) && none(y.Grad)) &&
			(same(x.Weight, y.Weight) || none(x.Weight) && none(y.Weight))
	})
}

// fault adds a fault that a step shows.
func (t *trial[T]) fault(code Code, format string, args ...any) {
	t.faults++
	t.suite.report(code, "%s (%s)", fmt.Sprintf(format, args...), t.where)
}

// digest returns a hash of the contents of a tensor, or 0 if values are not read.
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
	if s.apart {
		s.rule = Apart(schedule.DepthFirst, s.lag, t.number())
	}
	x := &run[T]{trial: t, setting: s}
	hooks := runner.Hooks{Action: x.action}
	if s.retired != nil {
		hooks.Microbatch = func(sample *memory.Sample) { s.retired(sample.Microbatch) }
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
	if s.made != nil {
		s.made(want, h)
	}
	return h, nil
}

// source makes the entries.
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

// feed is the stage before the one under test: it makes its inputs.
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
			return t.recordOwn(mb, !t.hasSink())
		},
		BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, _ []T) error {
			if t.ownsObjective() && !t.hasSink() {
				mb.LossSeed(1)
			}
			return nil
		},
	}
	t.declareOwn(&feed.Declares, !t.hasSink())
	return feed
}

// sink is the stage after the one under test: it makes the gradients of its outputs.
func (t *trial[T]) sink(s setting[T]) stages.Stage[T] {
	sink := &stages.Func[T]{
		Declares: stages.Spec{Name: "stagetest sink", Inputs: t.spec.Outputs},
		ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], in, _ []T) error {
			for i, h := range in {
				t.sizes[place{outputs, mb.Index(), i}] = t.space.Bytes(h)
			}
			return t.recordOwn(mb, true)
		},
		BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[T], _, gradIn []T) error {
			if t.ownsObjective() {
				mb.LossSeed(1) // the gradients of outputs come from Make
			}
			if gradIn == nil {
				return nil
			}
			for i, port := range t.spec.Outputs {
				if port.NoGrad {
					continue
				}
				h, err := t.make(s, Want{
					Kind: GradOut, Index: i, Name: port.Name, Microbatch: mb.Index(), Class: memory.ActGrad,
					Bytes: t.sizes[place{outputs, mb.Index(), i}],
				})
				if err != nil {
					return err
				}
				gradIn[i] = h
			}
			return nil
		},
	}
	t.declareOwn(&sink.Declares, true)
	return sink
}

// declareOwn declares the suite's objective, if there is one and this stage is to record it.
func (t *trial[T]) declareOwn(spec *stages.Spec, here bool) {
	if here && t.ownsObjective() {
		spec.Losses = []string{ownLoss}
	}
}

func (t *trial[T]) recordOwn(mb batchctx.Microbatch[T], here bool) error {
	if here && t.ownsObjective() {
		mb.Loss(1, 1, 1)
	}
	return nil
}

func (t *trial[T]) ownsObjective() bool {
	return len(t.losses) > 0 && t.losses[len(t.losses)-1].Name == ownLoss
}

// resident reports whether a tensor has the lifetime of the model.
func (t *trial[T]) resident(h T) bool { return t.subject.Space.Class(h) == memory.Resident }
