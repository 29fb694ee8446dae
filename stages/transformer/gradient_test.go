package transformer_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// larger makes the weights large enough that every part of the model affects the loss, and
// norms and biases different from 1 and 0.
func larger(t *testing.T, dev kernels.Compute, m *transformer.Model, r *rand.Rand) {
	for _, p := range m.Parameters() {
		w := read(t, dev, p.Weight)
		for i := range w {
			w[i] = 10*w[i] + float32(0.2*r.NormFloat64())
			if len(p.Shape) == 1 {
				w[i] = w[i]/10 + float32(0.1*r.NormFloat64())
			}
		}
		require.NoError(t, dev.WriteFloat32(p.Weight, w))
	}
}

// TestGradient compares the loss and the gradient of every parameter with central differences
// of the oracle, along a random direction and for single elements.
func TestGradient(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*transformer.Config)
		stages int
	}{
		{"one stage", func(*transformer.Config) {}, 1},
		{"all stages", func(*transformer.Config) {}, 4},
		{"dropout", func(c *transformer.Config) { c.Dropout = 0.25 }, 3},
		{"untied and recompute", func(c *transformer.Config) { c.Untied, c.Recompute, c.Dropout = true, true, 0.1 }, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := random(t)
			cfg := tiny
			test.change(&cfg)
			dev := newHost(t)
			m := newModel(t, dev, cfg, test.stages)
			larger(t, dev, m, r)
			batch := sequences(r, cfg, 3)
			o := newOracle(t, dev, m, cfg)

			for _, stage := range m.Stages() {
				for _, param := range stages.Params(stage) {
					fill(t, dev, param.Grad, float32(math.NaN())) // The first write must not add.
				}
			}
			run := newRunner(t, dev, m.Stages(), nil)
			result := runStep(t, run, len(batch), &source{dev, batch})
			sum, weight := o.loss(batch)
			require.InEpsilon(t, sum, result.Losses[0].Sum, 1e-5)
			require.Equal(t, weight, result.Losses[0].Weight)

			const epsilon = 1e-5
			slope := func(name string, direction []float64) float64 {
				w := o.weights[name]
				ends := [2]float64{}
				for end, sign := range []float64{1, -1} {
					o.weights[name] = make([]float64, len(w))
					for i := range w {
						o.weights[name][i] = w[i] + sign*epsilon*direction[i]
					}
					ends[end], _ = o.loss(batch)
				}
				o.weights[name] = w
				return (ends[0] - ends[1]) / (2 * epsilon)
			}
			var squares float64
			for _, p := range m.Parameters() {
				grad := read(t, dev, p.Grad)
				direction := make([]float64, len(grad))
				var along, norm float64
				for i, g := range grad {
					direction[i] = r.NormFloat64()
					along += direction[i] * float64(g)
					norm += float64(g) * float64(g)
				}
				squares += norm
				tolerance := 1e-5*math.Sqrt(norm) + 1e-5
				require.InDelta(t, slope(p.Name, direction), along, 5*tolerance, "along a direction of %s", p.Name)
				for range 3 {
					element := make([]float64, len(grad))
					at := r.IntN(len(grad))
					element[at] = 1
					require.InDelta(t, slope(p.Name, element), float64(grad[at]), tolerance, "element %d of %s", at, p.Name)
				}
			}
			require.InEpsilon(t, math.Sqrt(squares)/weight, result.GradNorm, 1e-6)
		})
	}
}
