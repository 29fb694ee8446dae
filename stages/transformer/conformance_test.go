package transformer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/invariants"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestConformance checks every stage of two splits against the contract of package stages.
func TestConformance(t *testing.T) {
	for _, recompute := range []bool{false, true} {
		cfg := tiny
		cfg.Dropout, cfg.Recompute, cfg.Layers = 0.1, recompute, 1
		for _, count := range []int{1, 3} {
			for i := range count {
				t.Run(fmt.Sprintf("stage %d of %d recompute %v", i, count, recompute), func(t *testing.T) {
					stagetest.Run(t, stagetest.Config[kernels.Buffer]{
						New:         func() (stagetest.Subject[kernels.Buffer], error) { return subject(cfg, count, i) },
						EvalDiffers: true,
						Allocations: !invariants.Enabled,
					})
				})
			}
		}
	}
}

// TestDifferencesFindAPercent multiplies each gradient of each stage by 1.01 in turn: stagetest
// detects every one, along a direction.
func TestDifferencesFindAPercent(t *testing.T) {
	cfg := tiny
	cfg.Dropout, cfg.Layers = 0.1, 1
	for i := range 3 {
		s, err := subject(cfg, 3, i)
		require.NoError(t, err)
		params := len(stages.Params(s.Stage))
		require.NoError(t, s.Close())
		for scaled := range params + min(i, 1) { // the last one is gradIn
			faults := stagetest.Check(stagetest.Config[kernels.Buffer]{
				New: func() (stagetest.Subject[kernels.Buffer], error) {
					s, err := subject(cfg, 3, i)
					if err == nil {
						s.Stage = &off{s.Stage, s.Gradients.(*kernels.Host), scaled}
					}
					return s, err
				},
				EvalDiffers: true,
			})
			require.Len(t, faults, 1, "stage %d, gradient %d", i, scaled)
			require.Equal(t, stagetest.GradientDiffers, faults[0].Code, faults[0].Text)
		}
	}
}

// off is a stage with one gradient, given by the number of the parameter, multiplied by 1.01.
// The number after the last parameter means the gradient of the input.
type off struct {
	stages.Stage[kernels.Buffer]
	host   *kernels.Host
	scaled int
}

func (o *off) Unwrap() stages.Stage[kernels.Buffer] { return o.Stage }

func (o *off) Backward(ctx context.Context, mb batchctx.Microbatch[kernels.Buffer], gradOut, gradIn []kernels.Buffer) error {
	if err := o.Stage.Backward(ctx, mb, gradOut, gradIn); err != nil {
		return err
	}
	var x []float32
	params := stages.Params(o.Stage)
	switch {
	case o.scaled < len(params) && mb.Index() == 1 && !mb.Frozen(batchctx.Param(o.scaled+1)): // the last microbatch of the check
		x = o.host.Float32s(params[o.scaled].Grad)
	case o.scaled == len(params) && gradIn != nil:
		x = o.host.Float32s(gradIn[0])
	}
	for i := range x {
		x[i] *= 1.01
	}
	return nil
}

// TestFP8Conformance checks blocks in FP8 against the contract as well.
func TestFP8Conformance(t *testing.T) {
	for i, name := range []string{"delayed", "mxfp8", "nvfp4"} {
		cfg := inFP8(t, name)
		cfg.Dropout, cfg.Recompute, cfg.Layers, cfg.FP8Attention = 0.1, i == 0, 1, i > 0
		t.Run(name, func(t *testing.T) {
			stagetest.Run(t, stagetest.Config[kernels.Buffer]{
				New:         func() (stagetest.Subject[kernels.Buffer], error) { return subject(cfg, 3, 1) },
				EvalDiffers: true,
				Allocations: !invariants.Enabled,
			})
		})
	}
}

// subject returns one stage of a model on a separate device.
func subject(cfg transformer.Config, count, stage int) (stagetest.Subject[kernels.Buffer], error) {
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 4 << 20})
	if err != nil {
		return stagetest.Subject[kernels.Buffer]{}, err
	}
	m, err := transformer.New(dev, cfg, count)
	if err != nil {
		return stagetest.Subject[kernels.Buffer]{}, err
	}
	tokens := func(want stagetest.Want) int { return 1 + (3+2*want.Microbatch)%cfg.Context }
	s := stagetest.OnDevice(dev, m.Stages()[stage], func(want stagetest.Want) int { return tokens(want) * cfg.Width })
	floats := s.Make
	s.Make = func(want stagetest.Want) (kernels.Buffer, error) {
		if want.Kind != stagetest.Part {
			return floats(want)
		}
		if want.Name == transformer.Parts[2] {
			b, err := dev.Alloc(want.Class, kernels.Float32, tokens(want))
			if err != nil {
				return b, err
			}
			weights := make([]float32, b.N)
			for i := range weights {
				weights[i] = 1 + want.Float(i)
			}
			return b, dev.WriteFloat32(b, weights)
		}
		b, err := dev.Alloc(want.Class, kernels.Int32, tokens(want))
		if err != nil {
			return b, err
		}
		ids := make([]int32, b.N)
		for i := range ids {
			ids[i] = int32(want.Int(i, cfg.Vocabulary))
		}
		return b, dev.WriteInt32(b, ids)
	}
	return s, nil
}
