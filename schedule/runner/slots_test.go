package runner_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
)

// nothing is a source of entries without parts.
var nothing = runner.Indexed(func(context.Context, batchctx.Entry[buffer]) error { return nil })

// slotted is a stage that splits its backward. A test sets what its calls do with slots.
type slotted struct {
	dev                  kernels.Addressable
	d                    stages.Decl[buffer]
	loss                 batchctx.Loss
	param                batchctx.Param
	save                 func(mb batchctx.Microbatch[buffer])
	input, weight, whole func(mb batchctx.Microbatch[buffer])
}

func newSlotted(t *testing.T, dev kernels.Addressable) *slotted {
	s := &slotted{dev: dev}
	grad, err := dev.Floats(memory.Resident, 0)
	require.NoError(t, err)
	s.loss, s.param = s.d.Loss("loss"), s.d.Param("w", grad)
	return s
}

func (s *slotted) stage() stages.Stage[buffer] {
	forward := func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		mb.Loss(s.loss, 1, 1)
		s.save(mb)
		return nil
	}
	weight := func(_ context.Context, mb batchctx.Microbatch[buffer]) error {
		mb.Grad(s.param)
		s.weight(mb)
		return nil
	}
	input := func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		mb.LossSeed(s.loss)
		s.input(mb)
		return nil
	}
	backward := func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		mb.LossSeed(s.loss)
		mb.Grad(s.param)
		s.whole(mb)
		return nil
	}
	return s.d.Split("only", forward, backward, input, weight)
}

// TestOneSlotForBothHalves saves one tensor that I and W read, on plans with and without a split backward,
// recomputed, in a sequence, with planned memory, and offloaded.
func TestOneSlotForBothHalves(t *testing.T) {
	for _, schedule := range []string{"zb-h1", "1f1b"} {
		for _, wrap := range []string{"plain", "recomputed", "in a sequence", "planned", "offloaded"} {
			t.Run(schedule+" "+wrap, func(t *testing.T) {
				var taken []string
				build := func(dev kernels.Addressable) stages.Stage[buffer] {
					s := newSlotted(t, dev)
					other := s.d.Slot("other")
					probs := s.d.Slot("probs", batchctx.ByBackward, batchctx.ByWeight)
					late := s.d.Slot("late", batchctx.ByWeight)
					s.save = func(mb batchctx.Microbatch[buffer]) {
						mb.Save(other, mb.Must(dev.Floats(memory.Saved, 1)))
						mb.Save(probs, mb.Must(dev.Floats(memory.Saved, make([]float32, 512)...)))
						mb.Save(late, mb.Must(dev.Floats(memory.Saved, 3)))
					}
					s.input = func(mb batchctx.Microbatch[buffer]) {
						mb.Take(other)
						taken = append(taken, fmt.Sprint("I", len(dev.Float32s(mb.Take(probs)))))
					}
					s.weight = func(mb batchctx.Microbatch[buffer]) {
						mb.Take(late)
						taken = append(taken, fmt.Sprint("W", len(dev.Float32s(mb.Take(probs)))))
					}
					s.whole = func(mb batchctx.Microbatch[buffer]) {
						mb.Take(other)
						s.weight(mb)
					}
					stage := s.stage()
					switch wrap {
					case "recomputed":
						return stages.Recompute(stage)
					case "in a sequence":
						sequence, err := stages.Sequential("sequence", stage)
						require.NoError(t, err)
						return sequence
					}
					return stage
				}
				host, err := kernels.NewHost(kernels.HostConfig{})
				require.NoError(t, err)
				defer host.Close()
				cfg := runner.Config[buffer]{Stages: []stages.Stage[buffer]{build(host)}, Spaces: runner.Spaces(host), Schedule: schedule}
				if wrap == "planned" || wrap == "offloaded" {
					null := kernels.NewNull(host)
					dry := cfg
					dry.Stages, dry.Spaces = []stages.Stage[buffer]{build(null)}, runner.Spaces(null)
					cfg.Memory.Profile, err = record.Stages(t.Context(), dry, record.Shape[buffer]{Name: "one", Source: nothing})
					require.NoError(t, err)
				}
				if wrap == "offloaded" {
					cfg.Memory.Offload.Share = 1
				}
				r := newRunner(t, cfg)
				defer func() { require.NoError(t, r.Close()) }()
				taken = nil
				result := runStep(t, r, 2, nothing)
				require.Zero(t, result.Excess)
				want := map[string]int{"W512": 2}
				if schedule == "zb-h1" {
					want["I512"] = 2
				}
				have := map[string]int{}
				for _, call := range taken {
					have[call]++
				}
				require.Equal(t, want, have)
				evaluate(t, r, 2, nothing)
			})
		}
	}
}

// TestSlotForBothHalvesIsHeldToIt ends a slot for both halves in I, or does not take it in one of them.
func TestSlotForBothHalvesIsHeldToIt(t *testing.T) {
	for name, c := range map[string]struct {
		input, weight func(mb batchctx.Microbatch[buffer], s batchctx.Slot)
		is            error
		says          string
	}{
		"ended in I": {func(mb batchctx.Microbatch[buffer], s batchctx.Slot) { mb.Take(s); mb.ReleaseSaved(s) }, nil,
			batchctx.ErrMisplaced, `the end of slot "probs" in I, which is also for W: Take it in both, and end it in W`},
		"moved in I": {func(mb batchctx.Microbatch[buffer], s batchctx.Slot) { mb.Move(s) }, nil, batchctx.ErrMisplaced, `slot "probs" in I`},
		"not in I": {func(batchctx.Microbatch[buffer], batchctx.Slot) {}, func(mb batchctx.Microbatch[buffer], s batchctx.Slot) { mb.Take(s) },
			batchctx.ErrUntaken, `slot "probs" of stage 0 (only): Take it in I`},
		"not in W": {func(mb batchctx.Microbatch[buffer], s batchctx.Slot) { mb.Take(s) }, func(batchctx.Microbatch[buffer], batchctx.Slot) {},
			batchctx.ErrUntaken, `slot "probs" of stage 0 (only): Take it in W`},
		"twice in W": {func(mb batchctx.Microbatch[buffer], s batchctx.Slot) { mb.Take(s) }, func(mb batchctx.Microbatch[buffer], s batchctx.Slot) { mb.Take(s); mb.Take(s) },
			batchctx.ErrTaken, `slot "probs"`},
	} {
		t.Run(name, func(t *testing.T) {
			host, err := kernels.NewHost(kernels.HostConfig{})
			require.NoError(t, err)
			defer host.Close()
			s := newSlotted(t, host)
			probs := s.d.Slot("probs", batchctx.ByWeight, batchctx.ByBackward)
			s.save = func(mb batchctx.Microbatch[buffer]) { mb.Save(probs, mb.Must(host.Floats(memory.Saved, 1))) }
			s.input = func(mb batchctx.Microbatch[buffer]) { c.input(mb, probs) }
			s.weight = func(mb batchctx.Microbatch[buffer]) { c.weight(mb, probs) }
			r := newRunner(t, runner.Config[buffer]{Stages: []stages.Stage[buffer]{s.stage()}, Spaces: runner.Spaces(host), Schedule: "zb-h1"})
			_, err = r.Step(t.Context(), 2, nothing)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// TestWhatTrainsAlsoEvaluates saves a tensor twice, in slots that are declared after the stage is made: the
// stage trains, evaluates, recomputes and is recorded. A tensor that is read after Save is an error that
// names the slot and the remedy in the passes in which no action takes it.
func TestWhatTrainsAlsoEvaluates(t *testing.T) {
	for _, reads := range []bool{false, true} {
		build := func(dev kernels.Addressable) stages.Stage[buffer] {
			s := newSlotted(t, dev)
			stage := s.stage()
			a, b := s.d.Slot("a"), s.d.Slot("b")
			s.save = func(mb batchctx.Microbatch[buffer]) {
				y := mb.Must(dev.Floats(memory.Saved, 1))
				mb.Save(a, y)
				mb.SaveFor(batchctx.ByWeight, b, mb.Retain(y))
				if reads {
					mb.Check(dev.ReadFloat32(make([]float32, 1), y))
				}
			}
			s.input = func(mb batchctx.Microbatch[buffer]) { mb.Take(a) }
			s.weight = func(mb batchctx.Microbatch[buffer]) { mb.Take(b) }
			s.whole = func(mb batchctx.Microbatch[buffer]) { mb.Take(a); mb.Take(b) }
			return stage
		}
		host, err := kernels.NewHost(kernels.HostConfig{})
		require.NoError(t, err)
		defer host.Close()
		null := kernels.NewNull(host)
		says := func(err error) {
			if !reads {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, memory.ErrStale)
			require.ErrorContains(t, err, `in this pass no action takes what is saved in slot "a", so Save released it: use a tensor before Save, or Retain it`)
		}
		cfg := runner.Config[buffer]{Stages: []stages.Stage[buffer]{build(host)}, Spaces: runner.Spaces(host), Schedule: "zb-h1"}
		r := newRunner(t, cfg)
		runStep(t, r, 2, nothing)
		_, err = r.Evaluate(t.Context(), 2, nothing)
		says(err)
		cfg.Stages = []stages.Stage[buffer]{stages.Recompute(build(host))}
		r = newRunner(t, cfg)
		_, err = r.Step(t.Context(), 2, nothing)
		says(err)
		cfg.Stages, cfg.Spaces = []stages.Stage[buffer]{build(null)}, runner.Spaces(null)
		_, err = record.Stages(t.Context(), cfg, record.Shape[buffer]{Name: "one", Source: nothing})
		says(err)
	}
}

// TestFailedNamesTheLeak loses a buffer and keeps another one: Hooks.Failed names the stage, the call and
// the microbatch of each.
func TestFailedNamesTheLeak(t *testing.T) {
	for name, c := range map[string]struct {
		save func(dev kernels.Addressable, mb batchctx.Microbatch[buffer], a batchctx.Slot)
		want string
	}{
		"lost": {func(dev kernels.Addressable, mb batchctx.Microbatch[buffer], a batchctx.Slot) {
			mb.Save(a, mb.Must(dev.Floats(memory.Saved, 1)))
			mb.Must(dev.Floats(memory.Workspace, 1, 2, 3))
		}, "microbatch 0: stage 0 (only) in F: allocated and lost, workspace, 12 bytes"},
		"kept": {func(dev kernels.Addressable, mb batchctx.Microbatch[buffer], a batchctx.Slot) {
			mb.Save(a, mb.Retain(mb.Must(dev.Floats(memory.Saved, 1, 2))))
		}, "microbatch 0: stage 0 (only) in I: released by the step and still referenced, saved, 8 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			host, err := kernels.NewHost(kernels.HostConfig{})
			require.NoError(t, err)
			defer host.Close()
			s := newSlotted(t, host)
			a := s.d.Slot("a")
			s.save = func(mb batchctx.Microbatch[buffer]) { c.save(host, mb, a) }
			s.input = func(mb batchctx.Microbatch[buffer]) { mb.Take(a) }
			s.weight = func(batchctx.Microbatch[buffer]) {}
			var held []string
			cfg := runner.Config[buffer]{Stages: []stages.Stage[buffer]{s.stage()}, Spaces: runner.Spaces(host), Schedule: "zb-h1"}
			cfg.Hooks.Failed = func(_ int, _ error, infos iter.Seq[memory.Info]) {
				for i := range infos {
					held = append(held, fmt.Sprintf("%s, %v, %d bytes", i.Name, i.Class, i.Bytes))
				}
			}
			r := newRunner(t, cfg)
			_, err = r.Step(t.Context(), 1, nothing)
			require.ErrorIs(t, err, batchctx.ErrLeak)
			require.Equal(t, []string{c.want}, held)
		})
	}
}
