package transformer_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/stages/transformer"
)

// BenchmarkStep measures a training step of 8 microbatches of 64 tokens without its update, in
// float32 and in every recipe.
func BenchmarkStep(b *testing.B) {
	const tokens, microbatches = 64, 8
	for _, name := range append([]string{"float32"}, fp8.Names...) {
		b.Run(name, func(b *testing.B) {
			cfg := transformer.Config{Vocabulary: 256, Width: 256, Layers: 2, Heads: 4, Context: tokens, Seed: 1}
			if name != "float32" {
				recipe, err := fp8.Named(name)
				require.NoError(b, err)
				cfg.FP8, cfg.FP8Attention = recipe, true
			}
			dev := newHost(b)
			r := newRunner(b, dev, newModel(b, dev, cfg, 2).Stages(), nil)
			q := sequence{tokens: make([]int32, tokens), labels: make([]int32, tokens), weights: make([]float32, tokens)}
			for i := range q.tokens {
				q.tokens[i], q.labels[i], q.weights[i] = int32(i), int32(i+1), 1
			}
			from := &source{dev, []sequence{q}}
			for b.Loop() {
				if _, err := r.Step(context.Background(), microbatches, from); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(tokens*microbatches*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
