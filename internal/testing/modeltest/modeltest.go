package modeltest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages/transformer"
)

// Record returns the profile of a transformer with the given number of stages, for microbatches of
// the given number of tokens. The profile is recorded on one rank without computing, and is valid for
// any placement.
func Record(t *testing.T, cfg transformer.Config, stages, tokens int) *layout.Profile {
	t.Helper()
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 38})
	require.NoError(t, err)
	defer func() { require.NoError(t, host.Close()) }()
	dev := kernels.NewNull(host)
	defer func() { require.NoError(t, dev.Close()) }()
	model, err := transformer.New(dev, cfg, stages)
	require.NoError(t, err)
	profile, err := record.Stages(t.Context(), runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: runner.Spaces(dev),
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	}, record.Shape[kernels.Buffer]{Name: "tokens", Source: &source{dev, tokens}})
	require.NoError(t, err)
	return profile
}

// source provides entries with a number of tokens.
type source struct {
	dev    kernels.Device
	tokens int
}

func (s *source) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	ids := make([]int32, s.tokens)
	transformer.Put(s.dev, entry, ids, ids, make([]float32, s.tokens))
	return nil
}
