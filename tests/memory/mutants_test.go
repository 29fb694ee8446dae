package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// keeper is a stage that calls a function with the arguments and results of its calls.
type keeper struct {
	stages.Stage[T]
	forward  func(mb batchctx.Microbatch[T], in, out []T)
	backward func(mb batchctx.Microbatch[T], gradOut, gradIn []T)
}

func (k *keeper) Unwrap() stages.Stage[T] { return k.Stage }

func (k *keeper) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	err := k.Stage.Forward(ctx, mb, in, out)
	if err == nil && k.forward != nil {
		k.forward(mb, in, out)
	}
	return err
}

func (k *keeper) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	err := k.Stage.Backward(ctx, mb, gradOut, gradIn)
	if err == nil && k.backward != nil {
		k.backward(mb, gradOut, gradIn)
	}
	return err
}

// TestKeptIsCaughtOnTheFirstMicrobatch keeps a buffer in a step with a layout. The step ends at the first
// microbatch with an error that names the stage, the class and the number of bytes. The next step succeeds.
func TestKeptIsCaughtOnTheFirstMicrobatch(t *testing.T) {
	const length = 5
	hidden := int64(4 * length * tiny.Width)
	for name, mutant := range map[string]struct {
		keeper keeper
		stage  int
		class  memory.Class
		bytes  int64
	}{
		"input":             {keeper{forward: func(mb batchctx.Microbatch[T], in, _ []T) { mb.Retain(in[0]) }}, 1, memory.Activation, hidden},
		"output":            {keeper{forward: func(mb batchctx.Microbatch[T], _, out []T) { mb.Retain(out[0]) }}, 2, memory.Activation, hidden},
		"gradient":          {keeper{backward: func(mb batchctx.Microbatch[T], gradOut, _ []T) { mb.Retain(gradOut[0]) }}, 1, memory.ActGrad, hidden},
		"returned gradient": {keeper{backward: func(mb batchctx.Microbatch[T], _, gradIn []T) { mb.Retain(gradIn[0]) }}, 0, memory.ActGrad, hidden},
	} {
		for _, plan := range []string{"depth-first", "1f1b", "gpipe"} {
			t.Run(name+" "+plan, func(t *testing.T) {
				s := setup{schedule: plan, ranks: 1, stages: 4, model: tiny, capacity: 1, unsplit: true}
				profile := profileOf(t, s, length)
				r := newRig(t, s, false)
				sound := r.group(t, profile)
				k := mutant.keeper
				k.Stage = r.cfg.Stages[1]
				r.cfg.Stages[1] = &k
				_, err := r.group(t, profile).Step(t.Context(), 9, r.sources(fixed(length)))
				var leak *batchctx.LeakError
				require.ErrorAs(t, err, &leak)
				require.Equal(t, 0, leak.Microbatch, "%v", err)
				require.Equal(t, mutant.stage, leak.Stage, "%v", err)
				require.Equal(t, mutant.class, leak.Class, "%v", err)
				require.Equal(t, mutant.bytes, leak.Bytes, "%v", err)
				require.Equal(t, resident(r.devs[0]), r.devs[0].Live(), "everything is released")
				_, err = sound.Step(t.Context(), 9, r.sources(fixed(length)))
				require.NoError(t, err, "the next step")
			})
		}
	}
}

// TestUnplannedIsRefused runs microbatches that are longer than those of the profile. Their
// allocations fail.
func TestUnplannedIsRefused(t *testing.T) {
	s := setup{schedule: "1f1b", ranks: 2, stages: 4, model: tiny, capacity: 1}
	profile := profileOf(t, s, 5)
	r := newRig(t, s, false)
	group := r.group(t, profile)
	longer := func(m int) int { return 5 + m/3 } // from microbatch 3 on
	_, err := group.Step(t.Context(), 9, r.sources(longer))
	var at *transport.StepError
	require.ErrorAs(t, err, &at)
	require.Equal(t, 3, at.Action.Microbatch())
	require.Equal(t, schedule.F, at.Action.Kind())
	require.ErrorIs(t, err, memory.ErrUnplanned)
	require.ErrorContains(t, err, "24 bytes (entry) requested")
	require.ErrorContains(t, err, "the plan has at most 20 bytes (entry)")
	for _, dev := range r.devs {
		require.Equal(t, resident(dev), dev.Live(), "everything is released")
	}
	result := runStep(t, group, 9, r.sources(fixed(5)))
	require.True(t, result.Planned)
}

// TestNoRoomForAStep gives a rank too little memory for a step. All ranks end the step and release
// everything; once there is enough memory, training and evaluation succeed.
func TestNoRoomForAStep(t *testing.T) {
	s := setup{schedule: "1f1b", ranks: 2, stages: 4, model: tiny, capacity: 1}
	profile := profileOf(t, s, 5, 8)
	r := newRig(t, s, false)
	cfg := r.cfg
	cfg.Memory.Profile = profile
	full := &crowded{Host: r.hosts[1], full: true}
	cfg.Spaces = runner.Spaces[kernels.Buffer, memory.Space[kernels.Buffer]](r.devs[0], full)
	group, err := runner.New(cfg)
	require.NoError(t, err)
	_, err = group.Step(t.Context(), 6, r.sources(fixed(5)))
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	for _, dev := range r.devs {
		require.Equal(t, resident(dev), dev.Live())
	}
	full.full = false
	result := runStep(t, group, 6, r.sources(fixed(5)))
	require.True(t, result.Planned)
	evaluated, err := group.Evaluate(t.Context(), 6, r.sources(fixed(8)))
	require.NoError(t, err)
	require.True(t, evaluated.Planned)
}

// crowded is a host that has too little memory for a step.
type crowded struct {
	*kernels.Host
	full bool
}

func (c *crowded) SetLayout(layout *memory.Layout) error {
	if c.full && layout != nil {
		return errors.Join(memory.ErrOutOfMemory, errors.New("no pages"))
	}
	return c.Host.SetLayout(layout)
}
