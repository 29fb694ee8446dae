package stagetest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
)

// head returns a stage y = w·x with the losses Σ y²/2 and Σ y; the second has a coefficient.
// All elements of w are 1. The seeds are equal if neither a scale nor a coefficient is set.
func head(broken string) (stagetest.Subject[kernels.Buffer], error) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	if err != nil {
		return stagetest.Subject[kernels.Buffer]{}, err
	}
	weight, err := host.Alloc(memory.Resident, kernels.Float32, width)
	if err != nil {
		return stagetest.Subject[kernels.Buffer]{}, err
	}
	grad, err := host.Alloc(memory.Resident, kernels.Float32, width)
	if err != nil {
		return stagetest.Subject[kernels.Buffer]{}, err
	}
	w := host.Float32s(weight)
	for i := range w {
		w[i] = 1
	}
	var d stages.Decl[kernels.Buffer]
	d.Inputs("x")
	kept, square, linear, count := d.Slot("x"), d.Loss("square"), d.Loss("linear"), d.Metric("count")
	use := batchctx.Use[kernels.Buffer]{Name: "w", Grad: grad, Weight: weight}
	if broken == "no Weight" {
		use.Weight = kernels.Buffer{}
	}
	param := d.Use(use)
	type mb = batchctx.Microbatch[kernels.Buffer]
	forward := func(_ context.Context, mb mb, in, _ []kernels.Buffer) error {
		x := host.Float32s(in[0])
		var squares, sum float64
		for i, v := range x {
			y := float64(w[i%width] * v)
			squares += y * y / 2
			sum += y
		}
		mb.Loss(square, squares, float64(len(x)))
		mb.Loss(linear, sum, float64(len(x)))
		mb.Loss(count, 1, 1)
		mb.Save(kept, mb.Retain(in[0]))
		return nil
	}
	backward := func(_ context.Context, mb mb, _, gradIn []kernels.Buffer) error {
		x := host.Float32s(mb.Take(kept))
		s, t := mb.LossSeed(square), float32(0)
		switch broken {
		case "never asks for a seed":
		case "misses the coefficient":
			t = s
			mb.LossSeed(linear)
		default:
			t = mb.LossSeed(linear)
		}
		switch broken {
		case "asks for the seed of a metric":
			mb.LossSeed(count)
		case "forgets the seed":
			s = 1
		case "doubles a term":
			t *= 2
		}
		factor := func(of string) float32 {
			if broken == of+" by 1.01" {
				return 1.01
			}
			return 1
		}
		if g, trains := mb.Grad(param); trains {
			dw := host.Float32s(g)
			for i, v := range x {
				dw[i%width] += (s*w[i%width]*v + t) * v * factor("gradient")
			}
		}
		if gradIn == nil {
			return nil
		}
		gradIn[0] = mb.Must(host.Alloc(memory.ActGrad, kernels.Float32, len(x)))
		dx := host.Float32s(gradIn[0])
		for i, v := range x {
			dx[i] = (s*w[i%width]*v + t) * w[i%width] * factor("gradIn")
			if broken == "forgets the weight" {
				dx[i] = s*w[i%width]*v + t
			}
		}
		return nil
	}
	return stagetest.OnDevice(host, d.Stage("head", forward, backward), func(want stagetest.Want) int { return width * (2 + want.Microbatch%3) }), nil
}

func heads(broken string) []stagetest.Fault {
	return stagetest.Check(stagetest.Config[kernels.Buffer]{
		New: func() (stagetest.Subject[kernels.Buffer], error) { return head(broken) },
	})
}

func TestDifferences(t *testing.T) {
	r := &recorder{TB: t}
	cfg := stagetest.Config[kernels.Buffer]{New: func() (stagetest.Subject[kernels.Buffer], error) { return head("") }}
	stagetest.Run(r, cfg)
	if len(r.errors)+len(r.logs) != 0 {
		t.Errorf("errors %q, logs %q", r.errors, r.logs)
	}
	r = &recorder{TB: t}
	cfg.New = func() (stagetest.Subject[kernels.Buffer], error) { return head("no Weight") }
	stagetest.Run(r, cfg)
	if len(r.errors) != 0 || len(r.logs) != 1 || !strings.Contains(r.logs[0], `the Use of "w" has no Weight`) {
		t.Errorf("errors %q, logs %q", r.errors, r.logs)
	}
	r = &recorder{TB: t}
	cfg.New = func() (stagetest.Subject[kernels.Buffer], error) { return head("doubles a term") }
	cfg.GradientDiffers = true
	stagetest.Run(r, cfg)
	if len(r.errors)+len(r.logs) != 0 {
		t.Errorf("errors %q, logs %q", r.errors, r.logs)
	}
}

// TestExact multiplies numbers that NVFP4 does not have, in a matrix with one more column of codes
// than was quantized.
func TestExact(t *testing.T) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	d := &stagetest.Exact{Host: host}
	put := func(x ...float32) kernels.Buffer {
		b, err := d.Floats(memory.Workspace, x...)
		require.NoError(t, err)
		return b
	}
	e := kernels.Encoding{Format: kernels.E2M1, Scaling: kernels.NV16}
	room := func(rows, cols int) kernels.Quantized {
		b, err := d.Alloc(memory.FP8, kernels.Uint8, e.Bytes(rows, cols))
		require.NoError(t, err)
		return kernels.Quantized{Data: b, Encoding: e, Rows: rows, Cols: cols}
	}
	op := kernels.Quantize{X: put(.1, .2, .3, .4, .5, .6), Rows: 3, Cols: 2, Rowwise: room(3, 2), Columnwise: room(2, 3)}
	require.NoError(t, d.Quantize(op))
	back := put(make([]float32, 6)...)
	require.NoError(t, d.Dequantize(back, op.Rowwise, false))
	require.Equal(t, []float32{.1, .2, .3, .4, .5, .6}, d.Float32s(back))
	require.NoError(t, d.Dequantize(back, op.Rowwise, true))
	require.Equal(t, []float32{.1, .3, .5, .2, .4, .6}, d.Float32s(back))

	wide := op.Columnwise
	wide.Cols = 4 // the same bytes
	c := put(1, 1, 1, 1)
	product := kernels.QuantizedMatMul{A: wide, B: wide, C: c, M: 2, N: 2, K: 4, Accumulate: true, Bias: put(0, 2), Workspace: put(make([]float32, d.QuantizedWorkspace(2, 2, 4))...)}
	require.NoError(t, d.QuantizedMatMul(product))
	require.Equal(t, []float32{1.35, 3.44, 1.44, 3.56}, d.Float32s(c))
	product.B = room(2, 4)
	require.ErrorContains(t, d.QuantizedMatMul(product), "Exact has not quantized the matrix of 2×4")
	product.K = -1
	require.ErrorIs(t, d.QuantizedMatMul(product), kernels.ErrShape)
	require.NoError(t, d.Close())
}
