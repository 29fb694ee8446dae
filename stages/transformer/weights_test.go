package transformer_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// moved is a stage whose weights are in other buffers than those with which it was made.
type moved struct {
	stages.Stage[kernels.Buffer]
	uses []batchctx.Use[kernels.Buffer]
}

func (m *moved) Unwrap() stages.Stage[kernels.Buffer]   { return m.Stage }
func (m *moved) Params() []batchctx.Use[kernels.Buffer] { return m.uses }

// TestWeightsAreAskedFor moves all weights to other buffers and fills the model's with NaN: the
// stages must compute with the weights that the microbatch gives them, in float32 and in FP8.
func TestWeightsAreAskedFor(t *testing.T) {
	low := inFP8(t, "current")
	for name, cfg := range map[string]transformer.Config{"float32": tiny, "recompute": recomputed(tiny), "fp8": low} {
		t.Run(name, func(t *testing.T) {
			dev := newHost(t)
			batch := sequences(random(t), cfg, 3)
			model := newModel(t, dev, cfg, 3)
			step := func(list []stages.Stage[kernels.Buffer]) (float64, float64) {
				r := newRunner(t, dev, list, nil)
				result, err := r.Step(context.Background(), len(batch), &source{dev, batch})
				require.NoError(t, err)
				require.NoError(t, r.Close())
				_, err = model.RollScales(context.Background(), nil)
				require.NoError(t, err)
				return result.Loss(transformer.LossName), result.GradNorm
			}
			wantLoss, wantNorm := step(model.Stages())

			elsewhere := map[string]kernels.Buffer{}
			for _, p := range model.Parameters() {
				b, err := dev.Alloc(memory.Resident, kernels.Float32, p.Weight.N)
				require.NoError(t, err)
				defer func() {
					_, err := dev.Release(b)
					require.NoError(t, err)
				}()
				require.NoError(t, dev.Copy(b, p.Weight))
				fill(t, dev, p.Weight, float32(math.NaN()))
				elsewhere[p.Name] = b
			}
			list := model.Stages()
			for i, s := range list {
				uses := append([]batchctx.Use[kernels.Buffer](nil), stages.Params(s)...)
				for u := range uses {
					uses[u].Weight = elsewhere[uses[u].Name]
				}
				list[i] = &moved{s, uses}
			}
			loss, norm := step(list)
			require.Equal(t, []float64{wantLoss, wantNorm}, []float64{loss, norm})
		})
	}
}

func recomputed(cfg transformer.Config) transformer.Config {
	cfg.Recompute = true
	return cfg
}
