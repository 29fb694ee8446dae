package main

import (
	"context"
	"errors"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// size is the configuration of the model: small, but complete.
var size = transformer.Config{Vocabulary: 256, Width: 64, Layers: 2, Heads: 4, Context: 64, Untied: true, Seed: 1}

// model is embedding, block, fused group, block and head on one device.
type model struct {
	dev    kernels.Compute
	inner  *transformer.Model
	stages []stage
}

// newModel makes the model on a device, without one of the guards.
func newModel(dev kernels.Compute, removed int) (*model, error) {
	places := []kernels.Compute{dev, &contextual{Compute: dev, removed: removed == attention}, dev, dev}
	inner, err := transformer.NewOn(size, places)
	if err != nil {
		return nil, err
	}
	fused, err := stages.Sequential("fused",
		stage(newOperation("gelu0", dev, removed == fuser)),
		stage(newOperation("gelu1", dev, removed == fuser)))
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	all := inner.Stages()
	head := &logged{stage: all[3], removed: removed == keptLoss}
	return &model{dev, inner, []stage{all[0], all[1], fused, all[2], head}}, nil
}

// config returns the runner's configuration for training the model.
func (m *model) config() runner.Config[kernels.Buffer] {
	return runner.Config[kernels.Buffer]{
		Stages: m.stages, Spaces: runner.Spaces(m.dev),
		Seed: size.Seed,
	}
}

// entries provides microbatches of the maximum length, each with its own numbers.
func (m *model) entries() runner.Source[kernels.Buffer] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
		return put(m.dev, entry, size.Context, size.Vocabulary)
	})
}

// put makes an entry with n tokens.
func put(dev kernels.Compute, entry batchctx.Entry[kernels.Buffer], n, vocabulary int) error {
	tokens, labels, weights := make([]int32, n), make([]int32, n), make([]float32, n)
	for i := range tokens {
		tokens[i] = int32((7*entry.Index() + 3*i) % vocabulary)
		labels[i] = (tokens[i] + 3) % int32(vocabulary)
		weights[i] = 1
	}
	transformer.Put(dev, entry, tokens, labels, weights)
	return nil
}
