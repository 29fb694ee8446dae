package runner_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// A stage still owns a buffer that it may not save because of its class: its deferred calls release the buffer
// immediately.
func TestARefusedBufferIsTheStages(t *testing.T) {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	freed := int64(0)
	var d stages.Decl[kernels.Buffer]
	x, kept, score := d.Part("x"), d.Slot("kept"), d.Loss("score")
	stage := d.Stage("refused",
		func(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, _ []kernels.Buffer) error {
			mb.Part(x)
			mb.Loss(score, 1, 1)
			h := mb.Must(dev.Floats(memory.Workspace, 1, 2))
			defer func() {
				before := dev.Live()
				mb.Release(h)
				freed = before - dev.Live()
			}()
			mb.Save(kept, h)
			return nil
		},
		func(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, _ []kernels.Buffer) error {
			mb.Take(kept)
			return nil
		})
	run, err := runner.New(runner.Config[kernels.Buffer]{Stages: []stages.Stage[kernels.Buffer]{stage}, Spaces: runner.Spaces(dev)})
	require.NoError(t, err)
	_, err = run.Step(t.Context(), 1, runner.Indexed(func(_ context.Context, e batchctx.Entry[kernels.Buffer]) error {
		e.Put("x", e.Must(dev.Floats(memory.Entry, 1)))
		return nil
	}))
	require.ErrorIs(t, err, batchctx.ErrClass)
	require.EqualValues(t, 8, freed)
	require.NoError(t, run.Close())
}
