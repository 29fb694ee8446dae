package transformer_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// large is a model with a parameter of 64 parts and others of one.
var large = transformer.Config{Vocabulary: 2111, Width: 64, Layers: 1, Heads: 2, Context: 10, Seed: 5}

// TestShards checks the sizes of all buffers at every level, and that the shards of the replicas
// are the weights of one model: initial weights do not depend on replicas.
func TestShards(t *testing.T) {
	want := map[string][]float32{}
	one := newHost(t)
	for _, p := range newModel(t, one, large, 3).Parameters() {
		want[p.Name] = read(t, one, p.Weight)
	}
	for _, replicas := range []int{2, 3, 4} {
		for shard := range 4 {
			t.Run(fmt.Sprintf("%d replicas, shard %d", replicas, shard), func(t *testing.T) {
				cfg := large
				cfg.Replicas, cfg.Shard = replicas, shard
				var devices [][]kernels.Compute
				for range replicas {
					first, second := newHost(t), newHost(t) // the head has a copy of the embedding's table
					devices = append(devices, []kernels.Compute{first, first, second})
				}
				model, err := transformer.NewOn(cfg, devices...)
				require.NoError(t, err)
				defer func() { require.NoError(t, model.Close()) }()
				split := false
				for _, p := range model.Parameters() {
					var owned [2][]float32 // by the number of the copy in its replica
					number := map[int]int{}
					for c := range p.All() {
						n := len(want[p.Name])
						size := func(level int) int {
							if shard >= level {
								return c.Count
							}
							return n
						}
						require.Equal(t, []int{n, size(3), size(2), size(1), size(1)}, []int{n, c.Weight.N, c.Grad.N, c.M.N, c.V.N}, p.Name)
						split = split || c.Count > 0 && c.Count < n
						copied := number[c.Replica]
						number[c.Replica]++
						if c.Count == 0 {
							continue
						}
						require.Len(t, owned[copied], c.First, "%s of replica %d", p.Name, c.Replica)
						own, err := c.Own(c.Weight)
						require.NoError(t, err)
						owned[copied] = append(owned[copied], read(t, c.Device, own)...)
					}
					require.Len(t, number, replicas)
					for copied := range number[0] {
						require.Equal(t, bits(want[p.Name]), bits(owned[copied]), p.Name)
					}
				}
				require.True(t, split, "no parameter is split: the model is too small for this test")
				_, err = model.SHA256()
				require.Equal(t, shard == 3, err != nil, "%v", err)
			})
		}
	}
}

// TestReplicasHaveTheirOwnDevices checks the faults of a configuration of replicas.
func TestReplicasHaveTheirOwnDevices(t *testing.T) {
	a, b := newHost(t), newHost(t)
	cfg := tiny
	cfg.Replicas = 2
	for want, devices := range map[string][][]kernels.Compute{
		"3 lists of devices for 2 replicas":                      {{a}, {b}, {a}},
		"the device of stage 1 of copy 1 is also one of replica": {{a, a}, {b, a}},
	} {
		_, err := transformer.NewOn(cfg, devices...)
		require.ErrorContains(t, err, want)
	}
	cfg.Replicas, cfg.Shard = -1, 4
	err := cfg.Validate()
	require.ErrorContains(t, err, "Replicas is -1")
	require.ErrorContains(t, err, "Shard is 4, want 0 to 3")
}

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
				result := runStep(t, r, len(batch), &source{dev, batch})
				require.NoError(t, r.Close())
				_, err := model.RollScales(context.Background(), nil)
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
