package transformer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
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
						New:         func() (stagetest.Subject[kernels.Buffer], error) { return subject(cfg, count, i, nil) },
						EvalDiffers: true,
						Allocations: !invariants.Enabled,
					})
				})
			}
		}
	}
}

// TestDifferencesFindAPercent multiplies each gradient of each stage by 1.01 in turn: stagetest must
// detect every one, along a direction. In a block in FP8 the test also multiplies each product. Without
// -long it multiplies every third gradient of a parameter.
func TestDifferencesFindAPercent(t *testing.T) {
	plain, low := tiny, inFP8(t, "delayed")
	low.FP8Attention = true
	for _, cfg := range []*transformer.Config{&plain, &low} {
		cfg.Dropout, cfg.Layers = 0.1, 1
	}
	find := func(cfg transformer.Config, stage, scaled int, product string) {
		var dev *inexact
		faults := stagetest.Check(stagetest.Config[kernels.Buffer]{
			New: func() (stagetest.Subject[kernels.Buffer], error) {
				s, err := subject(cfg, 3, stage, func(host *kernels.Host) kernels.Compute {
					dev = &inexact{Exact: stagetest.Exact{Host: host}, width: cfg.Width, scaled: product}
					return dev
				})
				if err == nil {
					s.Stage = &off{s.Stage, dev.Host, scaled}
				}
				return s, err
			},
			EvalDiffers: true,
		})
		require.Len(t, faults, 1, "stage %d, gradient %d, product %q", stage, scaled, product)
		require.Equal(t, stagetest.GradientDiffers, faults[0].Code, faults[0].Text)
	}
	for i := range 4 {
		cfg, stage := plain, i
		if i == 3 {
			cfg, stage = low, 1
		}
		s, err := subject(cfg, 3, stage, nil)
		require.NoError(t, err)
		params := len(stages.Params(s.Stage))
		require.NoError(t, s.Close())
		for scaled := range params + min(i, 1) { // the last one is gradIn
			if scaled%3 != i%3 && scaled < params && !*testkit.Long {
				continue
			}
			find(cfg, stage, scaled, "")
		}
	}
	for _, of := range []string{"forward", "input", "weight"} {
		for _, layer := range []string{"qkv", "output", "up", "down"} {
			find(low, 1, -1, of+" "+layer)
		}
	}
}

// inexact is a device on which one of the products of a block in FP8 is 1.01 times what it should
// be.
type inexact struct {
	stagetest.Exact
	width  int
	scaled string
}

func (d *inexact) QuantizedMatMul(op kernels.QuantizedMatMul) error {
	of, in, out := "input", op.N, op.K
	switch {
	case op.Bias != kernels.Buffer{}:
		of, in, out = "forward", op.K, op.N
	case d.Class(op.C) == memory.Resident:
		of, in, out = "weight", op.M, op.N
	}
	w := d.width
	layer := map[[2]int]string{{w, 3 * w}: "qkv", {w, w}: "output", {w, 4 * w}: "up", {4 * w, w}: "down"}[[2]int{in, out}]
	if of+" "+layer != d.scaled {
		return d.Exact.QuantizedMatMul(op)
	}
	before := make([]float32, op.C.N)
	if op.Accumulate {
		copy(before, d.Float32s(op.C))
	}
	err := d.Exact.QuantizedMatMul(op)
	for i, x := range d.Float32s(op.C) {
		d.Float32s(op.C)[i] = before[i] + 1.01*(x-before[i])
	}
	return err
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
	case o.scaled >= 0 && o.scaled < len(params) && mb.Index() == 1 && !mb.Frozen(batchctx.Param(o.scaled+1)): // the last microbatch of the check
		x = o.host.Float32s(params[o.scaled].Grad)
	case o.scaled == len(params) && gradIn != nil:
		x = o.host.Float32s(gradIn[0])
	}
	for i := range x {
		x[i] *= 1.01
	}
	return nil
}

// TestFP8Conformance checks blocks in FP8 against the contract as well, and without rounding
// against differences of the losses.
func TestFP8Conformance(t *testing.T) {
	exact := func(host *kernels.Host) kernels.Compute { return &stagetest.Exact{Host: host} }
	for i, name := range []string{"delayed", "mxfp8", "nvfp4"} {
		cfg := inFP8(t, name)
		cfg.Dropout, cfg.Recompute, cfg.Layers, cfg.FP8Attention = 0.1, i == 0, 1, i > 0
		for on, device := range map[string]func(*kernels.Host) kernels.Compute{"host": nil, "exact": exact} {
			t.Run(name+" "+on, func(t *testing.T) {
				stagetest.Run(t, stagetest.Config[kernels.Buffer]{
					New:         func() (stagetest.Subject[kernels.Buffer], error) { return subject(cfg, 3, 1, device) },
					EvalDiffers: true,
					Allocations: !invariants.Enabled && device == nil,
				})
			})
		}
	}
}

// subject returns one stage of a model on a separate host, or on the device that device returns for it.
func subject(cfg transformer.Config, count, stage int, device func(*kernels.Host) kernels.Compute) (stagetest.Subject[kernels.Buffer], error) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 4 << 20})
	if err != nil {
		return stagetest.Subject[kernels.Buffer]{}, err
	}
	dev := kernels.Compute(host)
	if device != nil {
		dev = device(host)
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
