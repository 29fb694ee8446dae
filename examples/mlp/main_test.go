package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/checkpoint"
)

func weightsOf(t *testing.T, folder string) (all []float32) {
	c, err := checkpoint.Open(folder)
	require.NoError(t, err)
	for _, tensor := range c.Tensors() {
		values := make([]float32, tensor.Shape[0]*tensor.Shape[1])
		require.NoError(t, checkpoint.Read(c, tensor.Name, tensor.Shape, values))
		all = append(all, values...)
	}
	require.NoError(t, c.Close())
	return all
}

// interrupt cancels a context when the program has written a number of lines.
type interrupt struct {
	bytes.Buffer
	after  int
	cancel func()
}

func (i *interrupt) Write(p []byte) (int, error) {
	if i.after--; i.after == 0 {
		i.cancel()
	}
	return i.Buffer.Write(p)
}

// An interrupted run resumes and reaches the weights of an uninterrupted one.
func TestTrain(t *testing.T) {
	whole, parts := t.TempDir(), t.TempDir()
	var out bytes.Buffer
	require.NoError(t, train(t.Context(), 60, whole, &out))
	require.Regexp(t, `step 50  ring 0\.[0-2]\d+  radius 0\.0\d+  growth per microbatch 0 bytes`, out.String())

	ctx, cancel := context.WithCancel(t.Context())
	first := &interrupt{after: 1, cancel: cancel}
	require.NoError(t, train(ctx, 60, parts, first))
	require.Contains(t, first.String(), "interrupted in step 51:")
	require.NoError(t, train(t.Context(), 60, parts, &out))
	require.Equal(t, weightsOf(t, whole), weightsOf(t, parts))

	file, err := os.Open(filepath.Join(parts, "memory.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	records := 0
	for record, err := range memlog.Read(file) {
		require.NoError(t, err)
		require.Zero(t, record.Growth)
		require.True(t, record.Planned)
		records++
	}
	require.GreaterOrEqual(t, records, 60*4*microbatches)
}

func TestTheProgramStaysShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	code := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			code++
		}
	}
	require.Less(t, code, 260)
}
