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
	"github.com/weir-ml/weir/trainer/job"
)

// data is the training data: the bytes of a text, or the tokens of a file.
type data struct {
	name              string
	sum               string // identifies the data
	training, heldout corpus.Sequence
	documents         *corpus.Documents // of training; nil without -lengths
	text              *corpus.Text      // nil with -tokens
	file              *corpus.Tokens    // nil without -tokens
}

// maxText is the maximum number of bytes of text, all of which is in memory.
const maxText = 64 << 20

// readData opens the file of -data and splits it: the last tenth is held out. Both parts must be
// longer than -seq. The caller closes the data.
func readData(ctx context.Context, o *options) (*data, error) {
	d := &data{name: o.data}
	var err error
	if o.tokens != "" {
		if d.file, err = corpus.OpenTokens(o.data, tokenBytes[o.tokens]); err != nil {
			return nil, job.Flag("data", err)
		}
		at := d.file.Len() - d.file.Len()/10
		d.training, d.heldout = d.file.Slice(0, at), d.file.Slice(at, d.file.Len())
		d.sum, err = d.file.SHA256()
		err = job.Flag("data", err)
	} else {
		switch {
		case o.data == "" && o.lengths:
			d.text, err = corpus.GoSource(ctx, maxText)
		case o.data == "":
			d.text, err = corpus.Installed(ctx, maxText)
		default:
			d.text, err = corpus.Read(ctx, o.data, maxText, nil)
		}
		if err != nil {
			return nil, job.Flag("data", err)
		}
		at := len(d.text.Bytes) - len(d.text.Bytes)/10
		d.name, d.sum = d.text.Name, d.text.SHA256()
		d.training, d.heldout = corpus.Bytes(d.text.Bytes[:at:at]), corpus.Bytes(d.text.Bytes[at:])
		if o.lengths {
			whole := slices.IndexFunc(d.text.Ends, func(end int) bool { return end >= at })
			d.documents = corpus.NewDocuments(append(d.text.Ends[:whole:whole], at), o.sequence, o.model.Seed)
		}
	}
	if err == nil && d.heldout.Len() <= o.sequence {
		err = fmt.Errorf("-seq %d is longer than the data: %s has %d %ss and the held-out tenth is %d: use a smaller -seq or more text",
			o.sequence, d.name, d.len(), o.unit(), d.heldout.Len())
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *data) len() int { return d.training.Len() + d.heldout.Len() }

// describe identifies the text in messages.
func (d *data) describe(o *options) string {
	return fmt.Sprintf("%s (%d %ss, SHA-256 %.12s...)", d.name, d.len(), o.unit(), d.sum)
}

// Close unmaps a mapped file.
func (d *data) Close() error {
	if d == nil || d.file == nil {
		return nil
	}
	return d.file.Close()
}

const frequenciesAlone = "byte frequencies alone"

// baselines returns losses for comparison: the loss of a model that only uses the frequency of
// each byte.
func (d *data) baselines() map[string]float64 {
	if d.text == nil {
		return nil // a file of tokens is not read as a whole
	}
	return map[string]float64{frequenciesAlone: d.text.Entropy()}
}

// drawn returns the windows of training steps over a text.
func (o *options) drawn(text corpus.Sequence, step int) *corpus.Drawn {
	d := &corpus.Drawn{Size: text.Len(), Longest: o.sequence, Seed: o.model.Seed, Step: int64(step)}
	if l, ok := text.(corpus.Bytes); ok {
		d.Text = l
	}
	return d
}

// source provides entries of a text for predicting the next token.
type source struct {
	dev kernels.Device
	corpus.Reader
	packed *packedStep // the sequences of each microbatch; nil, or without packs, if each has one
}

// Next makes the entry of one microbatch.
func (s *source) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	tokens, labels, weights, err := s.Read(s.packed.sequences(entry.Index())...)
	if beyond, is := errors.AsType[*corpus.VocabularyError](err); is {
		return fmt.Errorf("-data: token %d is %d, expected less than -vocabulary %d: give more, or the -tokens that the file was written with",
			beyond.Position, beyond.Token, beyond.Vocabulary)
	} else if err != nil {
		return job.Flag("data", err)
	}
	transformer.Put(s.dev, entry, tokens, labels, weights)
	return nil
}
