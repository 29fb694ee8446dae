package transformer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestFrozen freezes the first stages: their weights and gradients do not change, and the other
// stages get the same gradients as without freezing.
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
		result := runStep(t, r, len(batch), &source{dev, batch})
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
	runStep(t, r, len(batch), &source{dev, batch})
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
	params []batchctx.Use[kernels.Buffer]
}

func (w *without) Params() []batchctx.Use[kernels.Buffer] { return w.params }

// TestFrozenPrefixInFP8 freezes the beginning of a sequence: it has no copies of its weights
// for a backward that does not run, and each copy is named by its weight. The gradients of the
// other stages equal those of separate stages.
func TestFrozenPrefixInFP8(t *testing.T) {
	cfg := inFP8(t, "delayed")
	cfg.Untied = true
	batch := sequences(random(t), cfg, 1)
	batch = append(batch, batch[0])
	gradients := func(join bool) (all map[string][]uint32, names []string) {
		dev := newHost(t)
		build := func(dev kernels.Compute) (*transformer.Model, []stages.Stage[kernels.Buffer]) {
			m := newModel(t, dev, cfg, 4)
			list := m.Stages()
			list[0], list[1] = stages.Freeze(list[0]), stages.Freeze(list[1])
			if join {
				s, err := stages.Sequential("all", list...)
				require.NoError(t, err)
				list = []stages.Stage[kernels.Buffer]{s}
			}
			return m, list
		}
		null := kernels.NewNull(dev)
		_, list := build(null)
		var dry runner.Config[kernels.Buffer]
		newRunner(t, null, list, func(c *runner.Config[kernels.Buffer]) { dry = *c })
		profile, err := record.Stages(t.Context(), dry,
			record.Shape[kernels.Buffer]{Name: "whole", Source: &source{null, batch}})
		require.NoError(t, err)
		for _, s := range profile.Shapes[0].Stages {
			if s.Quantize == nil {
				continue
			}
			for _, ref := range s.Quantize.Out {
				names = append(names, s.Buffers[ref.Index].Name)
			}
		}

		m, list := build(dev)
		r := newRunner(t, dev, list, func(c *runner.Config[kernels.Buffer]) { c.Memory.Profile = profile })
		result := runStep(t, r, len(batch), &source{dev, batch})
		require.Zero(t, result.Excess)
		all = map[string][]uint32{}
		for _, p := range m.Parameters() {
			all[p.Name] = bits(read(t, dev, p.Grad))
		}
		return all, names
	}
	var forward, backward []string
	for _, block := range []string{"block0", "block1"} {
		for _, linear := range []string{".attention.qkv", ".attention.output", ".mlp.up", ".mlp.down"} {
			forward = append(forward, block+linear+" for the forward")
			if block == "block1" {
				backward = append(backward, block+linear+" for the backward")
			}
		}
	}
	want, _ := gradients(false)
	have, names := gradients(true)
	require.Equal(t, append(forward, backward...), names)
	require.Equal(t, want, have)
}
