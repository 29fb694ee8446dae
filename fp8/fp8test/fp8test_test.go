package fp8test_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8/fp8test"
	"github.com/weir-ml/weir/kernels"
)

func open(t *testing.T, set kernels.Instructions, threads int) kernels.Compute {
	h, err := kernels.NewHost(kernels.HostConfig{Capacity: 256 << 20, Instructions: set, Threads: threads})
	require.NoError(t, err)
	return h
}

// Every instruction set of the host is the host in plain Go, with threads too.
func TestHost(t *testing.T) {
	for _, set := range []kernels.Instructions{kernels.AVX2, kernels.AVX512, kernels.Portable} {
		if set.Available() {
			t.Run(set.String(), func(t *testing.T) {
				fp8test.Run(t, func() kernels.Compute { return open(t, set, 3) })
			})
		}
	}
}

// broken is the host with one fault.
type broken struct {
	kernels.Compute
	quantize   func(op *kernels.Quantize)
	product    func(op *kernels.QuantizedMatMul)
	dequantize func(dst kernels.Buffer) // afterwards
}

func (d *broken) Quantize(op kernels.Quantize) error {
	if d.quantize != nil {
		d.quantize(&op)
	}
	return d.Compute.Quantize(op)
}

func (d *broken) QuantizedMatMul(op kernels.QuantizedMatMul) error {
	if d.product != nil {
		d.product(&op)
	}
	return d.Compute.QuantizedMatMul(op)
}

func (d *broken) Dequantize(dst kernels.Buffer, q kernels.Quantized, transposed bool) error {
	err := d.Compute.Dequantize(dst, q, transposed)
	if d.dequantize != nil {
		d.dequantize(dst)
	}
	return err
}

// A device with a fault fails the case that is there for it.
func TestFaultsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		found string
		spoil func(d *broken)
	}{
		"the scale of the history is not taken": {"delayed/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Scale = kernels.Cell{} } }},
		"margins are forgotten":                 {"delayed/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Margin = 0 } }},
		"an epsilon is forgotten":               {"current/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Epsilon = 0 } }},
		"scales are powers of two":              {"block/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.AnyScale = false } }},
		"scales are rounded up":                 {"mxfp8/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Down = false } }},
		"rounds to nearest":                     {"nvfp4/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Stochastic = false } }},
		"another key":                           {"mxfp8/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Key.Microbatch++ } }},
		"no tally":                              {"current/quantize", func(d *broken) { d.quantize = func(op *kernels.Quantize) { op.Tally = kernels.Cell{} } }},
		"decodes nothing":                       {"block/quantize", func(d *broken) { d.dequantize = func(dst kernels.Buffer) { _ = d.Zero(dst) } }},
		"does not accumulate":                   {"mxfp8/product", func(d *broken) { d.product = func(op *kernels.QuantizedMatMul) { op.Accumulate = false } }},
		"no bias":                               {"mixed/product", func(d *broken) { d.product = func(op *kernels.QuantizedMatMul) { op.Bias = kernels.Buffer{} } }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, check := range fp8test.Cases() {
				if check.Name == c.found {
					d := &broken{Compute: open(t, kernels.BestInstructions, 1)}
					require.NoError(t, check.Check(d, 3))
					c.spoil(d)
					require.Error(t, check.Check(d, 3))
					require.NoError(t, d.Close())
				}
			}
		})
	}
}
