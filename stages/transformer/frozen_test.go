package transformer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestFrozen freezes the first stages: nothing of them is computed or changes,
// and what trains gets the same gradients as without.
func TestFrozen(t *testing.T) {
	cfg := tiny
	cfg.Untied = true
	batch := sequences(random(t), cfg, 3)
	whole := train(t, cfg, 4, 1, nil, batch)
	for frozen := 1; frozen <= 3; frozen++ {
		dev := newHost(t)
		m := newModel(t, dev, cfg, 4)
		list := m.Stages()
		fixed := map[string]bool{}
		for i := range frozen {
			for _, param := range stages.Params(list[i]) {
				require.Equal(t, batchctx.Every, param.Contributes)
				fixed[param.Name] = true
			}
			list[i] = stages.Freeze(list[i])
		}
		before := map[string][]float32{}
		for _, p := range m.Parameters() {
			p.Frozen = fixed[p.Name]
			before[p.Name] = read(t, dev, p.Weight)
		}
		r := newRunner(t, dev, list, nil)
		result, err := r.Step(context.Background(), len(batch), &source{dev, batch})
		require.NoError(t, err)
		require.NoError(t, m.Update(transformer.AdamW{LearningRate: 0.1, WeightDecay: 0.1}, result, 0))
		for _, p := range m.Parameters() {
			if p.Frozen {
				require.Equal(t, before[p.Name], read(t, dev, p.Weight), p.Name)
				require.Equal(t, make([]float32, p.Grad.N), read(t, dev, p.Grad), p.Name)
				continue
			}
			require.NotEqual(t, before[p.Name], read(t, dev, p.Weight), p.Name)
			require.Equal(t, whole.gradients[p.Name], bits(read(t, dev, p.Grad)), p.Name)
		}
	}
}

// TestFrozenMiddle freezes a block between parts that train.
func TestFrozenMiddle(t *testing.T) {
	batch := sequences(random(t), tiny, 3)
	whole := train(t, tiny, 4, 1, nil, batch)
	dev := newHost(t)
	m := newModel(t, dev, tiny, 4)
	list := m.Stages()
	list[1] = stages.Freeze(list[1])
	r := newRunner(t, dev, list, nil)
	_, err := r.Step(context.Background(), len(batch), &source{dev, batch})
	require.NoError(t, err)
	for _, p := range m.Parameters() {
		if strings.HasPrefix(p.Name, "block0.") {
			require.Equal(t, make([]float32, p.Grad.N), read(t, dev, p.Grad), p.Name)
		} else {
			require.Equal(t, whole.gradients[p.Name], bits(read(t, dev, p.Grad)), p.Name)
		}
	}
}

// without is a stage with one parameter frozen.
type without struct {
	stages.Stage[kernels.Buffer]
	params []batchctx.Param[kernels.Buffer]
}

func (w *without) Params() []batchctx.Param[kernels.Buffer] { return w.params }

// TestFrozenAlone freezes every parameter in turn: its gradient is not touched,
// and all others keep their bits.
func TestFrozenAlone(t *testing.T) {
	cfg := tiny
	cfg.Untied, cfg.Layers, cfg.Dropout = true, 1, 0.1
	batch := sequences(random(t), cfg, 3)
	whole := train(t, cfg, 3, 1, nil, batch)
	dev := newHost(t)
	m := newModel(t, dev, cfg, 3)
	for _, fixed := range m.Parameters() {
		fill(t, dev, fixed.Grad, 42)
		list := m.Stages()
		for i, stage := range list {
			params := append([]batchctx.Param[kernels.Buffer](nil), stages.Params(stage)...)
			for p := range params {
				if params[p].Name == fixed.Name {
					params[p].Contributes = batchctx.Frozen
				}
			}
			list[i] = &without{stage, params}
		}
		r := newRunner(t, dev, list, nil)
		_, err := r.Step(context.Background(), len(batch), &source{dev, batch})
		require.NoError(t, err)
		for _, p := range m.Parameters() {
			grad := read(t, dev, p.Grad)
			if p != fixed {
				require.Equal(t, whole.gradients[p.Name], bits(grad), "%s with %s frozen", p.Name, fixed.Name)
				continue
			}
			for _, g := range grad {
				require.Equal(t, float32(42), g, fixed.Name)
			}
		}
	}
}
