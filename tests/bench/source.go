package main

import (
	"context"
	"math/rand/v2"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// source makes the same four sequences of random tokens for every step.
type source struct {
	dev     kernels.Device
	tokens  [batch][]int32 // one more than a sequence has: the labels are the next ones
	weights []float32
}

func newSource(dev kernels.Device, c configuration) *source {
	s := &source{dev: dev, weights: make([]float32, c.sequence)}
	for i := range s.weights {
		s.weights[i] = 1
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range s.tokens {
		for range c.sequence + 1 {
			s.tokens[i] = append(s.tokens[i], r.Int32N(int32(c.vocabulary)))
		}
	}
	return s
}

// Next makes the entry of one microbatch: tokens, labels and weights.
func (s *source) Next(_ context.Context, entry *batchctx.Entry[kernels.Buffer]) error {
	tokens := s.tokens[entry.Microbatch()]
	n := len(s.weights)
	for part, ids := range [][]int32{tokens[:n], tokens[1:]} {
		b, err := s.dev.Alloc(memory.Entry, kernels.Int32, n)
		if err != nil {
			return err
		}
		if err := s.put(entry, part, b, s.dev.WriteInt32(b, ids)); err != nil {
			return err
		}
	}
	b, err := s.dev.Alloc(memory.Entry, kernels.Float32, n)
	if err != nil {
		return err
	}
	return s.put(entry, 2, b, s.dev.WriteFloat32(b, s.weights))
}

// put hands a buffer over, or ends it where something went wrong.
func (s *source) put(entry *batchctx.Entry[kernels.Buffer], part int, b kernels.Buffer, err error) error {
	if err == nil {
		err = entry.Put(part, b)
	}
	if err != nil {
		_, _ = s.dev.Release(b) // The first error is the one to tell.
	}
	return err
}
