package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

// Devices are given by name, and an unavailable one is reported in one line before anything is
// done.
func TestDevice(t *testing.T) {
	for text, want := range map[string]int{"cuda": 0, "cuda:0": 0, "cuda:3": 3} {
		o := defaults()
		o.device = text
		number, cuda, err := o.cudaNumber()
		require.NoError(t, err)
		require.True(t, cuda)
		require.Equal(t, want, number)
	}
	for _, text := range []string{"", "gpu", "cuda:", "cuda:-1", "cuda:x", "host:1"} {
		o := defaults()
		o.device = text
		require.ErrorContains(t, o.validate(), "want host, cuda, or cuda:2", text)
	}
	o := defaults()
	o.device, o.emitCosts = "cuda", "costs"
	require.ErrorContains(t, o.validate(), "leave out -emit-costs")
	for text, want := range map[string]string{"half": `-products is "half": give float32`, "bfloat16": "-products and -plain-launches are for -device cuda"} {
		o, err := parse([]string{"-products", text})
		require.NoError(t, err)
		require.ErrorContains(t, o.validate(), want)
	}
}

// The error for a model that a device rejects suggests a smaller one only if the model does not
// fit.
func TestTooLarge(t *testing.T) {
	heads := errors.New("heads of 256 elements: give more heads")
	require.Equal(t, heads, tooLarge(heads))
	require.ErrorContains(t, tooLarge(fmt.Errorf("model: %w", memory.ErrOutOfMemory)), "use a smaller -width or fewer -layers")
}
