package transformer_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestUpdate compares two updates, with the gradient clipped and not, with the formula in
// float64.
func TestUpdate(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit float64 // of the norm, as a multiple of its value
	}{{"clipped", 0.7}, {"below the limit", 1.5}, {"off", 0}} {
		t.Run(test.name, func(t *testing.T) {
			dev := newHost(t)
			m := newModel(t, dev, tiny, 2)
			batch := sequences(random(t), tiny, 3)
			r := newRunner(t, dev, m.Stages(), nil)
			reference := map[string]*adamW{}
			for _, p := range m.Parameters() {
				reference[p.Name] = newAdamW(read(t, dev, p.Weight))
			}
			const rate, decay = 0.01, 0.1
			for update := 1; update <= 2; update++ {
				result := runStep(t, r, len(batch), &source{dev, batch})
				maxNorm := test.limit * result.GradNorm
				require.NoError(t, m.Update(transformer.AdamW{LearningRate: rate, WeightDecay: decay}, result, maxNorm))
				require.Equal(t, int64(update), m.Updates)
				require.ErrorIs(t, m.Update(transformer.AdamW{LearningRate: rate}, result, 0), runner.ErrUpdated)
				require.Equal(t, int64(update), m.Updates)

				factor := 1 / result.Losses[0].Weight
				if test.limit > 0 && test.limit < 1 {
					factor *= test.limit
				}
				for _, p := range m.Parameters() {
					reference := reference[p.Name]
					decays := 0.0
					if p.Decay {
						decays = decay
					}
					reference.step(read(t, dev, p.Grad), factor, rate, decays, update)
					for i, w := range read(t, dev, p.Weight) {
						require.InDelta(t, reference.w[i], float64(w), 2e-6, "%s[%d] after update %d", p.Name, i, update)
					}
				}
			}
		})
	}
}

// adamW is the published update in float64, with the usual parameters.
type adamW struct{ w, m, v []float64 }

func newAdamW(weights []float32) *adamW {
	a := &adamW{m: make([]float64, len(weights)), v: make([]float64, len(weights))}
	for _, w := range weights {
		a.w = append(a.w, float64(w))
	}
	return a
}

func (a *adamW) step(grad []float32, factor, rate, decay float64, step int) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	for i := range a.w {
		g := float64(grad[i]) * factor
		a.m[i] = beta1*a.m[i] + (1-beta1)*g
		a.v[i] = beta2*a.v[i] + (1-beta2)*g*g
		m, v := a.m[i]/(1-math.Pow(beta1, float64(step))), a.v[i]/(1-math.Pow(beta2, float64(step)))
		a.w[i] -= rate * (m/(math.Sqrt(v)+epsilon) + decay*a.w[i])
	}
}

func TestUpdateRefuses(t *testing.T) {
	dev := newHost(t)
	m := newModel(t, dev, tiny, 1)
	batch := sequences(random(t), tiny, 1)
	r := newRunner(t, dev, m.Stages(), nil)
	result := runStep(t, r, 1, &source{dev, batch})
	before := read(t, dev, m.Parameters()[0].Weight)

	nan := float32(math.NaN())
	err := m.Update(transformer.AdamW{LearningRate: nan, Beta1: 1, Beta2: -1, WeightDecay: float32(math.Inf(1))}, result, 0)
	for _, name := range []string{"LearningRate", "Beta1", "Beta2", "WeightDecay"} {
		require.ErrorContains(t, err, "AdamW."+name)
	}
	require.ErrorContains(t, m.Update(transformer.AdamW{}, result, -1), "want at least 0")
	require.ErrorContains(t, m.Update(transformer.AdamW{}, result, math.NaN()), "want at least 0")
	require.Zero(t, m.Updates)
	require.NoError(t, m.Update(transformer.AdamW{}, result, 0), "the factor is still there")
	require.Equal(t, before, read(t, dev, m.Parameters()[0].Weight), "a learning rate of 0")

	clear(batch[0].weights)
	empty := runStep(t, r, 1, &source{dev, batch})
	require.ErrorIs(t, m.Update(transformer.AdamW{LearningRate: 1}, empty, 0), runner.ErrNoUpdate)
	require.Equal(t, before, read(t, dev, m.Parameters()[0].Weight))
}
