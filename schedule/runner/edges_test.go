package runner_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// relay returns a stage whose result is its retained argument, in both directions.
func relay(name string) stages.Stage[number] {
	return &stages.Func[number]{
		Declares: stages.Spec{Name: name, Inputs: wire, Outputs: wire},
		ForwardFunc: func(_ context.Context, mb view, in, out []number) error {
			out[0] = mb.Retain(in[0])
			return nil
		},
		BackwardFunc: func(_ context.Context, mb view, gradOut, gradIn []number) error {
			if gradIn != nil {
				gradIn[0] = mb.Retain(gradOut[0])
			}
			return nil
		},
	}
}

func sequence(t *testing.T, inner ...stages.Stage[number]) stages.Stage[number] {
	t.Helper()
	s, err := stages.Sequential("sequence", inner...)
	require.NoError(t, err)
	return s
}

// TestAnIdentityKeepsNothing runs a relay alone, at either end of a sequence, and with outputs that a
// sink takes over.
func TestAnIdentityKeepsNothing(t *testing.T) { // L6
	for name, build := range map[string]func(c []*times) []stages.Stage[number]{
		"alone": func(c []*times) []stages.Stage[number] { return []stages.Stage[number]{c[0], relay("r"), c[1], c[2]} },
		"last of a sequence": func(c []*times) []stages.Stage[number] {
			return []stages.Stage[number]{c[0], sequence(t, c[1], relay("r")), c[2]}
		},
		"first of a sequence": func(c []*times) []stages.Stage[number] {
			return []stages.Stage[number]{c[0], sequence(t, relay("r"), c[1]), c[2]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			chain := chain()
			cfg := config(chain)
			cfg.Stages = build(chain)
			_, err := newRunner(t, cfg).Step(t.Context(), 3, &counted{})
			require.NoError(t, err)
			require.Equal(t, 15.0*6, *chain[0].grad)
		})
	}
	t.Run("to a sink", func(t *testing.T) {
		chain := chain()
		cfg := config(chain)
		cfg.Stages = []stages.Stage[number]{chain[0], relay("r")}
		var kept []float64
		cfg.Outputs = func(_ int, out []number) error { kept = append(kept, *out[0]); return nil }
		_, err := newRunner(t, cfg).Evaluate(t.Context(), 3, &counted{})
		require.NoError(t, err)
		require.Equal(t, []float64{2, 4, 6}, kept)
	})
}

// TestHalfAnOutputIsReleased has a stage that returns one of two outputs, and a space that cannot
// reclaim, so that the step must release the output that it took over.
func TestHalfAnOutputIsReleased(t *testing.T) { // L8
	chain := chain()
	cfg := config(chain)
	space := memory.NewGCSpace[number](nil, func(number) int64 { return 8 })
	cfg.Spaces = runner.Spaces[number](bare{space})
	cfg.Stages = []stages.Stage[number]{chain[0], &stages.Func[number]{
		Declares: stages.Spec{Name: "half", Inputs: wire, Outputs: []stages.Port{{Name: "x"}, {Name: "y"}}},
		ForwardFunc: func(_ context.Context, _ view, in, out []number) error {
			out[0] = num(*in[0])
			return nil
		},
	}}
	_, err := newRunner(t, cfg).Evaluate(t.Context(), 2, &counted{})
	require.ErrorContains(t, err, "the stage set no output 1 (y): set out[1] in Forward")
	require.Zero(t, space.Len())
}

// bare is a space without optional abilities.
type bare struct{ memory.Space[number] }

// TestResidentBuffersAreNotTheSteps hands over the trainer's constant repeatedly, as an entry
// part and as saved state, with one book and with two.
func TestResidentBuffersAreNotTheSteps(t *testing.T) {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	defer arena.Close()
	type handle = memory.Handle
	constant, err := arena.Alloc(memory.Resident, 16)
	require.NoError(t, err)
	for _, ahead := range []int{0, 2} {
		r := newRunner(t, runner.Config[handle]{
			Spaces: runner.Spaces(arena),
			Stages: []stages.Stage[handle]{&stages.Func[handle]{
				Declares: stages.Spec{Name: "masked", Reads: []stages.Read{{Part: "mask"}}, Slots: []string{"x"}},
				ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[handle], _, _ []handle) error {
					mb.Save(1, mb.Retain(constant))
					return nil
				},
				BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[handle], _, _ []handle) error {
					mb.Take(1)
					return nil
				},
			}},
			Plan: runner.Plan{LookAhead: ahead},
		})
		runStep(t, r, 4, runner.Indexed(func(_ context.Context, e batchctx.Entry[handle]) error {
			if err := arena.Retain(constant); err != nil {
				return err
			}
			e.Put("mask", constant)
			return nil
		}))
		require.EqualValues(t, 16, arena.Live())
	}
}

func TestEveryUseHasItsOwnAccumulator(t *testing.T) { // L9
	chain := chain()
	cfg := config(chain)
	cfg.Stages = []stages.Stage[number]{chain[0], chain[1], chain[1], chain[2]}
	_, err := runner.New(cfg)
	require.ErrorContains(t, err, `"b" of stage 2 (three) has the same accumulator as "b" of stage 1 (three)`)
}

// TestThePlanIsTheOneThatWasAskedFor has rules that return plans for other parameters.
func TestThePlanIsTheOneThatWasAskedFor(t *testing.T) {
	for name, change := range map[string]func(p *schedule.Params){
		"mode":         func(p *schedule.Params) { p.Mode = schedule.Training },
		"microbatches": func(p *schedule.Params) { p.Microbatches = 5 },
		"stages":       func(p *schedule.Params) { p.Placement, p.Frozen = schedule.Looped(1, 2), nil },
	} {
		cfg := config(chain())
		cfg.Plan.Rule = func(p schedule.Params) (*schedule.Plan, error) { change(&p); return schedule.DepthFirst(p) }
		source := &counted{}
		_, err := newRunner(t, cfg).Evaluate(t.Context(), 2, source)
		require.ErrorIs(t, err, runner.ErrPlan, name)
		require.Zero(t, source.asked)
	}
	for name, change := range map[string]func(p *schedule.Plan) *schedule.Plan{
		"none":       func(*schedule.Plan) *schedule.Plan { return nil },
		"programs":   func(p *schedule.Plan) *schedule.Plan { p.Programs = nil; return p },
		"copies":     func(p *schedule.Plan) *schedule.Plan { p.Placement.Copies = 3; return p },
		"other rank": func(p *schedule.Plan) *schedule.Plan { p.Placement.Rank = []int{0, 1, 0}; return p },
	} {
		cfg := config(chain())
		cfg.Plan.Rule = func(p schedule.Params) (*schedule.Plan, error) {
			plan, err := schedule.DepthFirst(p)
			return change(plan), err
		}
		_, err := newRunner(t, cfg).Step(t.Context(), 2, &counted{})
		require.ErrorIs(t, err, runner.ErrPlan, name)
	}
}

func TestSeedsMustBeNumbers(t *testing.T) { // L10
	for _, wrong := range []struct {
		coefficient float64
		exponent    int
	}{{1e300, 0}, {1e-300, 0}, {2, 127}, {0.5, -126}} {
		cfg := config(chain())
		cfg.Losses = append(cfg.Losses, loss.Def{Name: "further", Coefficient: wrong.coefficient})
		cfg.ScaleExponent = wrong.exponent
		_, err := runner.New(cfg)
		require.ErrorContains(t, err, "not a normal float32", "%+v", wrong)
	}
}

func TestTheScaleMayChangeBetweenSteps(t *testing.T) { // L10
	chain := chain()
	r := newRunner(t, config(chain))
	for _, exponent := range []int{0, 12, -3} {
		require.NoError(t, r.SetScaleExponent(exponent))
		result := runStep(t, r, 2, &counted{})
		require.Equal(t, math.Ldexp(45, exponent), *chain[0].grad)
		factor, err := factorOf(result)
		require.NoError(t, err)
		require.Equal(t, math.Ldexp(0.5, -exponent), factor)
	}
	require.Error(t, r.SetScaleExponent(1000))
}

// TestFrozenStagesRunTheirWholeBackward freezes a stage that saves for its weight gradient
// without checking whether it is frozen.
func TestFrozenStagesRunTheirWholeBackward(t *testing.T) {
	for name, inSequence := range map[string]bool{"alone": false, "in a sequence": true} {
		chain := chain()
		frozen := stages.Freeze[number](&stages.Func[number]{
			Declares:   stages.Spec{Name: "doubling", Inputs: wire, Outputs: wire, Slots: []string{"x"}},
			Parameters: []batchctx.Use[number]{{Name: "w", Grad: num(7)}},
			ForwardFunc: func(_ context.Context, mb view, in, out []number) error {
				out[0] = num(2 * *in[0])
				mb.SaveFor(batchctx.ByWeight, 1, mb.Retain(in[0]))
				return nil
			},
			BackwardFunc: func(_ context.Context, mb view, gradOut, gradIn []number) error {
				_ = mb.Take(1)
				gradIn[0] = num(2 * *gradOut[0])
				_, write := mb.GradFirst(1)
				require.Equal(t, batchctx.Skip, write)
				return nil
			},
		})
		cfg := config(chain)
		cfg.Stages = []stages.Stage[number]{chain[0], frozen, chain[1], chain[2]}
		if inSequence {
			cfg.Stages = []stages.Stage[number]{chain[0], sequence(t, frozen, chain[1]), chain[2]}
		}
		_, err := newRunner(t, cfg).Step(t.Context(), 2, &counted{})
		require.NoError(t, err, name)
		require.Equal(t, 30.0*3, *chain[0].grad, name)
	}
}

// TestThePeakOfOneBook has a first entry of 100 bytes: the step's peak is in its microbatch, and each record has the
// peak of its own microbatch.
func TestThePeakOfOneBook(t *testing.T) {
	cfg := config(chain())
	cfg.Spaces[0] = memory.NewGCSpace(nil, func(h number) int64 {
		if *h == 1 {
			return 100
		}
		return 8
	})
	r := newRunner(t, cfg)
	result := runStep(t, r, 3, &counted{})
	for m, want := range []int64{100 + 3*8, 4 * 8, 4 * 8} { // entry, two activations, a gradient: live in the last stage's backward
		s := r.Samples(0).At(m)
		require.Equal(t, want, s.Peak, "microbatch %d", m)
		require.Equal(t, memory.ByClass{memory.Activation: want}, s.PeakClasses)
		require.Equal(t, max(want, 100+3*8), result.Peak)
	}
	require.Equal(t, memory.ByClass{memory.Activation: 100 + 3*8}, result.PeakClasses)
}

// TestTheGrowthOfAStepIsItsGreatest leaks a tensor in the second of three microbatches.
func TestTheGrowthOfAStepIsItsGreatest(t *testing.T) { // L7
	chain := chain()
	cfg := config(chain)
	cfg.Memory.TolerateLeaks = true
	cfg.Stages[1] = &stages.Func[number]{
		Declares: chain[1].Spec(), Parameters: chain[1].Params(), BackwardFunc: chain[1].Backward,
		ForwardFunc: func(ctx context.Context, mb view, in, out []number) error {
			if mb.Index() == 1 {
				mb.Retain(in[0])
			}
			return chain[1].Forward(ctx, mb, in, out)
		},
	}
	r := newRunner(t, cfg)
	result := runStep(t, r, 3, &counted{})
	for m, want := range []int64{0, 8, 0} {
		require.Equal(t, want, r.Samples(0).At(m).Growth)
	}
	require.EqualValues(t, 8, result.Growth.Bytes)
	require.EqualValues(t, 8, result.Excess)
}

func TestAnyLookAhead(t *testing.T) {
	cfg := config(chain())
	cfg.Plan.LookAhead = math.MaxInt
	source := &counted{}
	_, err := newRunner(t, cfg).Step(t.Context(), 3, source)
	require.NoError(t, err)
	require.Equal(t, 3, source.asked)
}

// TestAScopeCannotReachBeyondItsStage widens an access and saves there.
func TestAScopeCannotReachBeyondItsStage(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	cfg.Stages[1] = &stages.Func[number]{
		Declares: stages.Spec{Name: "wide", Inputs: wire, Outputs: wire},
		ForwardFunc: func(_ context.Context, mb view, in, _ []number) error {
			scope := mb.Access()
			scope.Slots.Count = 9
			mb.SetAccess(scope)
			mb.Save(6, mb.Retain(in[0]))
			return nil
		},
	}
	_, err := newRunner(t, cfg).Step(t.Context(), 1, &counted{})
	require.ErrorIs(t, err, batchctx.ErrUndeclared)
}

// TestFaultsOfTheConfigurationAreToldAtOnce checks that one error has all faults, except for
// faults that follow from others.
func TestFaultsOfTheConfigurationAreToldAtOnce(t *testing.T) {
	cfg := config(chain())
	cfg.Stages = append(cfg.Stages, nil)
	cfg.Plan.Placement = schedule.Looped(1, 3)
	reads := stages.Func[number]{Declares: stages.Spec{Name: "wide"}}
	for i := range frames.MaxParts + 1 {
		reads.Declares.Reads = append(reads.Declares.Reads, stages.Read{Part: fmt.Sprint("part ", i)})
	}
	cfg.Stages[0] = &reads
	_, err := runner.New(cfg)
	require.ErrorContains(t, err, fmt.Sprintf("%d entry parts, at most %d", frames.MaxParts+1, frames.MaxParts))
	require.ErrorContains(t, err, "4 stages and a placement of 3")
	require.NotContains(t, err.Error(), "stage 3 is nil", "without a placement there is no further fault")
}

// celled is a space with cells of losses on its device. No stage here adds to them.
type celled struct {
	*memory.GCSpace[number]
	live map[number]bool
}

func (c celled) NewLossCells(int) (number, error) {
	cells := num(0)
	c.live[cells] = true
	return cells, nil
}

func (celled) ClearLossCells(number) error { return nil }

func (celled) ReadLossCells(words []int64, _ number) error {
	clear(words)
	return nil
}

func (c celled) Release(h number) (int64, error) {
	if *h != 0 {
		return c.GCSpace.Release(h)
	}
	if !c.live[h] {
		return 0, memory.ErrStale
	}
	delete(c.live, h)
	return 8, nil
}

// The cells of losses live as long as the runner. A second Close does nothing.
func TestCloseReleasesCells(t *testing.T) {
	space := celled{memory.NewGCSpace[number](nil, nil), map[number]bool{}}
	cfg := config(chain())
	cfg.Spaces = runner.Spaces[number](space)
	r := newRunner(t, cfg)
	runStep(t, r, 2, &counted{})
	require.Len(t, space.live, 1)
	require.NoError(t, r.Close())
	require.Empty(t, space.live)
	require.NoError(t, r.Close())
}

// A stage still owns a buffer that it may not save because of its class: its deferred calls release the buffer
// immediately.
func TestARefusedBufferIsTheStages(t *testing.T) {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	freed := int64(0)
	var d stages.Decl[kernels.Buffer]
	x, kept, score := d.Part("x"), d.Slot("kept"), d.Loss("score")
	stage := d.Stage("refused",
		func(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, _ []kernels.Buffer) error {
			mb.Part(x)
			mb.Loss(score, 1, 1)
			h := mb.Must(dev.Floats(memory.Workspace, 1, 2))
			defer func() {
				before := dev.Live()
				mb.Release(h)
				freed = before - dev.Live()
			}()
			mb.Save(kept, h)
			return nil
		},
		func(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, _ []kernels.Buffer) error {
			mb.Take(kept)
			return nil
		})
	run := newRunner(t, runner.Config[kernels.Buffer]{Stages: []stages.Stage[kernels.Buffer]{stage}, Spaces: runner.Spaces(dev)})
	_, err = run.Step(t.Context(), 1, runner.Indexed(func(_ context.Context, e batchctx.Entry[kernels.Buffer]) error {
		e.Put("x", e.Must(dev.Floats(memory.Entry, 1)))
		return nil
	}))
	require.ErrorIs(t, err, batchctx.ErrClass)
	require.EqualValues(t, 8, freed)
	require.NoError(t, run.Close())
}

var (
	_ runner.Sharded[buffer] = (*kernels.Host)(nil)
	_ runner.Sharded[buffer] = (*kernels.Null)(nil)
)

// Spaces takes a slice of devices of any type, and devices of several types with type arguments.
func TestOn(t *testing.T) {
	a, b := device(t, false), device(t, true)
	require.Equal(t, []memory.Space[buffer]{a, b}, runner.Spaces([]kernels.Compute{a, b}...))
	hosts := []*kernels.Host{a.(*kernels.Host)}
	require.Equal(t, []memory.Space[buffer]{a}, runner.Spaces(hosts...))
	require.Equal(t, []memory.Space[buffer]{a, b}, runner.Spaces[buffer, memory.Space[buffer]](hosts[0], b.(*kernels.Null)))
}

// The excess in a record includes the tolerated leaks of earlier steps, and that in a result does not. A record names the
// call after which the excess grew.
func TestToleratedLeaksAddUp(t *testing.T) { // L6, L7
	chain := chain()
	cfg := config(chain)
	cfg.Memory.TolerateLeaks = true
	cfg.Stages[1] = &stages.Func[number]{
		Declares: chain[1].Spec(), Parameters: chain[1].Params(), BackwardFunc: chain[1].Backward,
		ForwardFunc: func(ctx context.Context, mb view, in, out []number) error {
			if mb.Index() == 1 {
				mb.Retain(in[0])
			}
			return chain[1].Forward(ctx, mb, in, out)
		},
	}
	r := newRunner(t, cfg)
	for step := range int64(3) {
		result := runStep(t, r, 3, &counted{})
		require.EqualValues(t, 8, result.Excess, "of the step alone")
		require.NoError(t, result.Update(func(float64) error { return nil }))
		samples := r.Samples(0)
		for m, leaked := range []int64{0, 8, 8} {
			s := samples.At(samples.Len() - 3 + m)
			require.Equal(t, step*8+leaked, s.Excess, "step %d, microbatch %d", step, m)
			if m != 1 {
				require.Zero(t, s.Growth)
				require.Zero(t, s.Leak)
				continue
			}
			require.EqualValues(t, 8, s.Growth)
			require.Equal(t, memory.Leak{Stage: 1, Name: chain[1].Spec().Name, Call: "B", Class: memory.Activation}, s.Leak)
		}
	}
}
