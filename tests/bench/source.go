package main

import (
	"context"
	"math/rand/v2"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages/transformer"
)

// source provides the same sequences of random tokens in every step, one for each microbatch.
type source struct {
	dev     kernels.Device
	tokens  [batch][]int32 // one more than in a sequence: the labels are the next tokens
	weights []float32
}

func newSource(dev kernels.Device, c configuration) *source {
	s := &source{dev: dev, weights: make([]float32, c.Sequence)}
	for i := range s.weights {
		s.weights[i] = 1
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range s.tokens {
		for range c.Sequence + 1 {
			s.tokens[i] = append(s.tokens[i], r.Int32N(int32(c.Vocabulary)))
		}
	}
	return s
}

// Next makes the entry of one microbatch: tokens, labels and weights.
func (s *source) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	tokens := s.tokens[entry.Index()]
	n := len(s.weights)
	transformer.Put(s.dev, entry, tokens[:n], tokens[1:], s.weights)
	return nil
}
