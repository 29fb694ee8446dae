package main

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
)

// readData reads the text, and splits it.
func readData(ctx context.Context, o *options) (text *corpus.Text, training, heldout []byte, err error) {
	if text, err = readText(ctx, o.data); err == nil {
		training, heldout, err = split(text, o.sequence)
	}
	return text, training, heldout, err
}

// split returns the text to train on and the last tenth, which is held out. Both
// must be longer than a microbatch.
func split(t *corpus.Text, sequence int) (training, heldout []byte, err error) {
	at := len(t.Bytes) - len(t.Bytes)/10
	training, heldout = t.Bytes[:at:at], t.Bytes[at:]
	if len(heldout) <= sequence {
		return nil, nil, fmt.Errorf("-seq %d is longer than the data: %s has %d bytes and the held-out tenth is %d: take a smaller -seq or more text",
			sequence, t.Name, len(t.Bytes), len(heldout))
	}
	return training, heldout, nil
}

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

// Next makes the entry of one microbatch.
func (s *source) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	s.fill(s.windows.Window(entry.Index()))
	transformer.Put(s.dev, entry, s.tokens, s.labels, s.weights)
	return nil
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
