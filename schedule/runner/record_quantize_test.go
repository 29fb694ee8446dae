package runner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
)

// newQuantized returns the configuration of a stage with copies of weights, 3 elements for the forward
// and 2 for the backward, and with a workspace of 5 elements while it makes them.
func newQuantized(t *testing.T, dev kernels.Device) *deviced {
	d := newDeviced(dev)
	d.stage.Declares.WeightCopies = []batchctx.WeightCopy{{Name: "down", At: batchctx.AtBackward}, {Name: "up", At: batchctx.AtForward}}
	d.stage.Declares.Losses = []string{objective[0].Name}
	d.stage.QuantizeFunc = func(_ context.Context, call batchctx.Quantization[buffer]) error {
		scratch := d.alloc(memory.Workspace, 5)
		call.Put(2, d.alloc(memory.FP8, 3))
		if call.Wants(1) {
			call.Put(1, d.alloc(memory.FP8, 2))
		}
		call.Release(scratch)
		return nil
	}
	d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		h := mb.WeightCopy(2)
		require.Equal(t, 3, h.N)
		mb.Loss(1, 1, 1)
		return nil
	}
	d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		h := mb.WeightCopy(1)
		require.Equal(t, 2, h.N)
		mb.LossSeed(1)
		return nil
	}
	return d
}

// The profile of QUANTIZE distinguishes copies for the forward; an evaluation has no others. The
// bytes of a step equal its plan.
func TestRecordQuantize(t *testing.T) {
	d := newQuantized(t, device(t, true))
	profile, err := d.record()
	require.NoError(t, err)
	require.True(t, profile.StageInfo[0].Quantizes)
	own := func(i int) layout.Ref { return layout.Ref{Kind: layout.Own, Index: i} }
	stage := &profile.Shapes[0].Stages[0]
	require.Equal(t, []layout.Buffer{
		{Name: "workspace of QUANTIZE", Bytes: 20, Class: memory.Workspace},
		{Name: "up for the forward", Bytes: 12, Class: memory.FP8},
		{Name: "down for the backward", Bytes: 8, Class: memory.FP8},
		{Name: "workspace of QUANTIZE", Bytes: 20, Class: memory.Workspace}, // of an evaluation
		{Name: "up for the forward", Bytes: 12, Class: memory.FP8},
	}, stage.Buffers)
	require.Equal(t, &layout.Call{Out: []layout.Ref{own(1), own(2)}, Forward: 1, Events: []layout.RefChange{
		{Op: layout.Alloc, Ref: own(0)}, {Op: layout.Alloc, Ref: own(1)}, {Op: layout.Alloc, Ref: own(2)}, {Op: layout.Release, Ref: own(0)},
	}}, stage.Quantize)
	require.Equal(t, []layout.Ref{own(4)}, stage.QuantizeEval.Out)
	require.EqualValues(t, 4, d.dev.Live())

	d = newQuantized(t, device(t, false))
	cfg := d.config()
	cfg.Memory.Profile = profile
	r := newRunner(t, cfg)
	for _, m := range []int{1, 3, 50} {
		result := runStep(t, r, m, d)
		require.True(t, result.Planned)
		require.EqualValues(t, 20+12+8, result.Height)
		result = evaluate(t, r, m, d)
		require.True(t, result.Planned)
		require.EqualValues(t, 20+12, result.Height)
	}
	require.EqualValues(t, 4, d.dev.Live())
}

// Copies made by QUANTIZE end with a dry run, even if it fails.
func TestRecordEndsCopies(t *testing.T) {
	for name, fails := range map[string]func(d *deviced){
		"not at all": func(*deviced) {},
		"in QUANTIZE": func(d *deviced) {
			makes := d.stage.QuantizeFunc
			d.stage.QuantizeFunc = func(ctx context.Context, call batchctx.Quantization[buffer]) error {
				return errors.Join(makes(ctx, call), errors.New("planted"))
			}
		},
		"in the forward": func(d *deviced) {
			d.stage.ForwardFunc = func(context.Context, batchctx.Microbatch[buffer], []buffer, []buffer) error {
				return errors.New("planted")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newQuantized(t, device(t, true))
			fails(d)
			cfg := d.config()
			cfg.Spaces[0] = unreclaimed{d.dev, d.dev.(memory.Watched[buffer])}
			_, err := record.Stages(t.Context(), cfg,
				record.Shape[buffer]{Name: "four", Source: d})
			if name != "not at all" {
				require.ErrorContains(t, err, "planted")
			}
			require.EqualValues(t, 4, d.dev.Live())
		})
	}
}

// A stage that declares copies must be a Quantizer.
func TestQuantizerDeclared(t *testing.T) {
	d := newQuantized(t, device(t, true))
	cfg := d.config()
	cfg.Stages[0] = struct{ stages.Stage[buffer] }{&d.stage}
	_, err := runner.New(cfg)
	require.ErrorContains(t, err, "stage 0 (only) declares copies of its weights but is not a stages.Quantizer")
	cfg.Stages[0], cfg.Plan.Quantizing = &d.stage, 7
	_, err = runner.New(cfg)
	require.ErrorContains(t, err, "Quantizing is quantizing(7)")
}

// A step makes the same allocations on the Go heap as without copies, for any number of
// microbatches (L11).
func TestCopiesAllocateOnce(t *testing.T) {
	if invariants.Enabled {
		t.Skip("every call has a view of its own there")
	}
	d := newQuantized(t, device(t, false))
	d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		_ = mb.WeightCopy(2)
		mb.Loss(1, 1, 1)
		return nil
	}
	d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		_ = mb.WeightCopy(1)
		mb.LossSeed(1)
		return nil
	}
	steps := func(m int) float64 {
		r := newRunner(t, d.config())
		return testing.AllocsPerRun(5, func() {
			if _, err := r.Step(t.Context(), m, d); err != nil {
				t.Error(err)
			}
		})
	}
	few := steps(128)
	require.Equal(t, few, steps(4096))
	d.stage.Declares.WeightCopies = nil
	d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		mb.Loss(1, 1, 1)
		return nil
	}
	d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		mb.LossSeed(1)
		return nil
	}
	require.Equal(t, steps(128), few)
}
