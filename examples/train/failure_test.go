package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/terminal"
)

// leaking is a device that keeps a reference to every float32 buffer.
type leaking struct{ kernels.Device }

func (l leaking) Alloc(class memory.Class, t kernels.DType, n int) (kernels.Buffer, error) {
	b, err := l.Device.Alloc(class, t, n)
	if err == nil && t == kernels.Float32 {
		err = l.Retain(b)
	}
	return b, err
}

// changed is a trainer that a test changes before its first step.
type changed struct {
	*trainer
	change func()
}

func (c changed) Begin(ctx context.Context) error {
	err := c.trainer.Begin(ctx)
	c.change()
	return err
}

// TestAFailureLeavesWhatWasAlive trains on a source that leaks: the run ends on the first
// microbatch, and names the file with the live buffers.
func TestAFailureLeavesWhatWasAlive(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	opts, err := parse(append(append([]string{}, tiny...), "-run", folder, "-data", sentence(t)))
	require.NoError(t, err)
	var out bytes.Buffer
	run := newTrainer(opts)
	run.people, run.out, run.json = &terminal.Output{Writer: &out}, &out, &out
	err = run.explained(run.session.Run(t.Context(), changed{run, func() {
		run.train = &source{leaking{run.devs[0]}, corpus.Reader{Sequence: corpus.Bytes(run.drawn.Text), Windows: run.drawn}, nil}
	}}))
	require.ErrorIs(t, err, batchctx.ErrLeak)
	require.ErrorContains(t, err, "bytes of class entry: an entry part was released with this action and is still referenced, by the source or by a stage that read it")
	require.ErrorContains(t, err, "the live memory at that time is in "+filepath.Join(folder, "failure.jsonl"))
	dump, err := os.ReadFile(filepath.Join(folder, "failure.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(dump), `"held by nobody","class":"entry"`)
	require.NoError(t, run.Close())
}
