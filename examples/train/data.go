package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
)

// data is what a run learns from: the bytes of a text, or the tokens of a file.
type data struct {
	name              string
	sum               string // identifies it
	training, heldout tokens
	text              *corpus.Text   // nil with -tokens
	file              *corpus.Tokens // nil without
}

// tokens are the numbers that a model learns from.
type tokens interface {
	Len() int
	ReadTokens(dst []int32, first int) error // as many as dst is long
}

// letters are bytes as tokens.
type letters []byte

func (l letters) Len() int { return len(l) }

func (l letters) ReadTokens(dst []int32, first int) error {
	for i, b := range l[first:][:len(dst)] {
		dst[i] = int32(b)
	}
	return nil
}

// readData opens what -data names, and splits it: the last tenth is held out. Both parts
// must be longer than a microbatch. The caller closes it.
func readData(ctx context.Context, o *options) (*data, error) {
	d := &data{name: o.data}
	var err error
	if o.tokens != "" {
		if d.file, err = corpus.OpenTokens(o.data, tokenBytes[o.tokens]); err != nil {
			return nil, dataError(err)
		}
		at := d.file.Len() - d.file.Len()/10
		d.training, d.heldout = d.file.Slice(0, at), d.file.Slice(at, d.file.Len())
		d.sum, err = d.file.SHA256()
		err = dataError(err)
	} else {
		if d.text, err = readText(ctx, o.data); err != nil {
			return nil, err
		}
		at := len(d.text.Bytes) - len(d.text.Bytes)/10
		d.name, d.sum = d.text.Name, d.text.SHA256()
		d.training, d.heldout = letters(d.text.Bytes[:at:at]), letters(d.text.Bytes[at:])
	}
	if err == nil && d.heldout.Len() <= o.sequence {
		err = fmt.Errorf("-seq %d is longer than the data: %s has %d %ss and the held-out tenth is %d: take a smaller -seq or more text",
			o.sequence, d.name, d.len(), o.unit(), d.heldout.Len())
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *data) len() int { return d.training.Len() + d.heldout.Len() }

// Close gives a mapped file back.
func (d *data) Close() error {
	if d == nil || d.file == nil {
		return nil
	}
	return d.file.Close()
}

const frequenciesAlone = "byte frequencies alone"

// baselines are losses to compare with: of a model that knows only how frequent each byte is.
func (d *data) baselines() map[string]float64 {
	if d.text == nil {
		return nil // A file of tokens is not read as a whole.
	}
	return map[string]float64{frequenciesAlone: d.text.Entropy()}
}

// drawn are the windows of training steps over a text.
func (o *options) drawn(text tokens, step int) *corpus.Drawn {
	d := &corpus.Drawn{Size: text.Len(), Longest: o.sequence, Seed: o.model.Seed, Step: int64(step)}
	if l, ok := text.(letters); ok {
		d.Text = l
	}
	return d
}

// source makes entries of a text: the label of a token is the token after it, and its
// weight is 1, or 0 for the last one of the text, which has none after it. It allocates
// nothing on the Go heap after the longest window.
type source struct {
	dev        kernels.Device
	text       tokens
	windows    corpus.Windows
	vocabulary int // 0 where no token is beyond it

	ids     []int32 // of a window, and the one after it
	weights []float32
}

// Next makes the entry of one microbatch.
func (s *source) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	if err := s.fill(s.windows.Window(entry.Index())); err != nil {
		return err
	}
	n := len(s.weights)
	transformer.Put(s.dev, entry, s.ids[:n], s.ids[1:], s.weights)
	return nil
}

// fill sets ids and weights to those of a window.
func (s *source) fill(begin, end int) error {
	n := end - begin
	s.ids = append(s.ids[:0], make([]int32, n+1)...)
	known := s.ids[:min(n+1, s.text.Len()-begin)]
	if err := s.text.ReadTokens(known, begin); err != nil {
		return dataError(err)
	}
	if most := slices.Max(known); s.vocabulary > 0 && int(most) >= s.vocabulary {
		return fmt.Errorf("-data: token %d is %d, expected less than -vocabulary %d: give more, or the -tokens that the file was written with",
			begin+slices.Index(known, most), most, s.vocabulary)
	}
	s.weights = s.weights[:0]
	for range n {
		s.weights = append(s.weights, 1)
	}
	if len(known) == n {
		s.weights[n-1] = 0
	}
	return nil
}
