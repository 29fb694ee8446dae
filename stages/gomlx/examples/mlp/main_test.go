package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrain(t *testing.T) {
	var out, again bytes.Buffer
	require.NoError(t, train(t.Context(), 2, 64, "1f1b", 4, &out))
	require.Regexp(t, `^step  0  loss \d\.\d+  peak \d+ bytes  growth per microbatch 0 bytes\nstep  1`, out.String())
	require.NoError(t, train(t.Context(), 2, 64, "1f1b", 4, &again))
	require.Equal(t, out.String(), again.String(), "the weights are not drawn by a seed")
}
