package transformer

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
)

// Model is the parameters of a transformer and the stages that train them. It is
// for one goroutine.
type Model struct {
	// Updates is how many updates the weights have seen. A checkpoint keeps it
	// with the weights and the moments, and sets it when it restores them.
	Updates int64

	dev        kernels.Compute
	stages     []stages.Stage[kernels.Buffer]
	parameters []*Parameter
	buffers    []kernels.Buffer // all that the model owns
}

// New makes a model on a device and splits it over stageCount stages, from 1 to
// Layers+2. The parts of the model are the embedding, the blocks and the head, in
// this order; every stage gets as many consecutive parts as every other, and
// where that does not come out even the first stages get one more. The initial
// weights do not depend on the split.
//
// The device is borrowed: it must outlive the model, and be the space of the
// runner that runs the stages. New works on a kernels.Null as well.
func New(dev kernels.Compute, cfg Config, stageCount int) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if parts := cfg.Layers + 2; stageCount < 1 || stageCount > parts {
		return nil, fmt.Errorf("transformer: %d stages, want 1 to %d: the embedding, %d blocks and the head",
			stageCount, parts, cfg.Layers)
	}
	b := newBuilder(dev, cfg)
	parts := b.parts()
	if b.err == nil {
		var joined []stages.Stage[kernels.Buffer]
		joined, b.err = split(parts, stageCount)
		if b.err == nil {
			return &Model{dev: dev, stages: joined, parameters: b.parameters, buffers: b.buffers}, nil
		}
	}
	_ = release(dev, b.buffers) // The first error is the one to tell.
	return nil, b.err
}

// parts builds the model from the embedding to the head.
func (b *builder) parts() []stages.Stage[kernels.Buffer] {
	embedding, table := b.embedding()
	parts := []stages.Stage[kernels.Buffer]{embedding}
	for i := 0; i < b.cfg.Layers && b.err == nil; i++ {
		var part stages.Stage[kernels.Buffer] = b.block(i)
		if b.cfg.Recompute {
			part = stages.Recompute(part)
		}
		parts = append(parts, part)
	}
	if b.cfg.Untied {
		table = nil
	}
	return append(parts, b.head(table))
}

// split joins consecutive parts into stages.
func split(parts []stages.Stage[kernels.Buffer], count int) ([]stages.Stage[kernels.Buffer], error) {
	out := make([]stages.Stage[kernels.Buffer], 0, count)
	each, more := len(parts)/count, len(parts)%count
	for i := range count {
		n := each
		if i < more {
			n++
		}
		here := parts[:n]
		parts = parts[n:]
		if n == 1 {
			out = append(out, here[0])
			continue
		}
		stage, err := stages.Sequential(here[0].Spec().Name+".."+here[n-1].Spec().Name, here...)
		if err != nil {
			return nil, err
		}
		out = append(out, stage)
	}
	return out, nil
}

// Stages returns the stages in order, for runner.Config.Stages.
func (m *Model) Stages() []stages.Stage[kernels.Buffer] { return slices.Clone(m.stages) }

// Parameters returns every parameter once, in an order that does not depend on
// the split: embedding, positions, blocks in ascending order, final norm, and the
// head's table where it is not tied.
func (m *Model) Parameters() []*Parameter { return slices.Clone(m.parameters) }

// Close releases every buffer of the model. The stages must not be called again.
// A second Close does nothing.
func (m *Model) Close() error {
	err := release(m.dev, m.buffers)
	m.buffers, m.parameters, m.stages = nil, nil, nil
	if err != nil {
		return fmt.Errorf("transformer: closing the model: %w", err)
	}
	return nil
}
