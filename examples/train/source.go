package main

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/trainer/corpus"
)

// source makes entries of a text: tokens are bytes, the label of a token is the
// byte after it, and its weight is 1, or 0 for the last byte of the text, which
// has none after it. It allocates nothing on the Go heap after the longest window.
type source struct {
	dev     kernels.Device
	text    []byte
	windows corpus.Windows

	tokens, labels []int32
	weights        []float32
}

// The parts of an entry, in the order of transformer.Parts.
const (
	partTokens = iota
	partLabels
	partWeights
)

// Next makes the entry of one microbatch.
func (s *source) Next(_ context.Context, entry *batchctx.Entry[kernels.Buffer]) error {
	begin, end := s.windows.Window(entry.Microbatch())
	s.fill(begin, end)
	if err := s.putInts(entry, partTokens, s.tokens); err != nil {
		return err
	}
	if err := s.putInts(entry, partLabels, s.labels); err != nil {
		return err
	}
	if !entry.Wants(partWeights) {
		return nil
	}
	buffer, err := s.dev.Alloc(memory.Entry, kernels.Float32, len(s.weights))
	if err != nil {
		return err
	}
	return s.put(entry, partWeights, buffer, s.dev.WriteFloat32(buffer, s.weights))
}

// fill sets tokens, labels and weights to those of a window.
func (s *source) fill(begin, end int) {
	s.tokens, s.labels, s.weights = s.tokens[:0], s.labels[:0], s.weights[:0]
	for i := begin; i < end; i++ {
		label, weight := int32(0), float32(0)
		if i+1 < len(s.text) {
			label, weight = int32(s.text[i+1]), 1
		}
		s.tokens = append(s.tokens, int32(s.text[i]))
		s.labels = append(s.labels, label)
		s.weights = append(s.weights, weight)
	}
}

func (s *source) putInts(entry *batchctx.Entry[kernels.Buffer], part int, values []int32) error {
	if !entry.Wants(part) { // the stages that read it are on another rank
		return nil
	}
	buffer, err := s.dev.Alloc(memory.Entry, kernels.Int32, len(values))
	if err != nil {
		return err
	}
	return s.put(entry, part, buffer, s.dev.WriteInt32(buffer, values))
}

// put hands a buffer over, or ends it where something went wrong.
func (s *source) put(entry *batchctx.Entry[kernels.Buffer], part int, buffer kernels.Buffer, err error) error {
	if err == nil {
		err = entry.Put(part, buffer)
	}
	if err != nil {
		_, _ = s.dev.Release(buffer) // The first error is the one to tell.
	}
	return err
}
