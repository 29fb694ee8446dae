package transformer

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

// ErrSequences is returned if the number of tokens of a microbatch differs from that of its sequences
// (Model.Sequences).
var ErrSequences = errors.New("transformer: the sequences are not those of the microbatch")

// Sequence is one of the sequences that are packed into a microbatch, one after another.
type Sequence struct {
	Number int // the sequence's number in the batch, by which its random draws are keyed
	Tokens int // at least 1
}

// span is the place of a sequence in its microbatch.
type span struct {
	first, tokens int
	number        int // the key of its random draws
}

// spans returns the sequences of the microbatch, which has the given number of tokens. The result
// is valid until the next call to spans.
func (c *call) spans(tokens int) []span {
	c.places = c.places[:0]
	if c.sequences == nil {
		c.places = append(c.places, span{0, tokens, c.mb.Index()})
		return c.places
	}
	first := 0
	for _, s := range c.sequences(c.mb.Index()) {
		if s.Tokens < 1 || s.Tokens > tokens-first {
			c.mb.Check(fmt.Errorf("%w: sequence %d of %d tokens from token %d, the microbatch has %d", ErrSequences, s.Number, s.Tokens, first, tokens))
		}
		c.places = append(c.places, span{first, s.Tokens, s.Number})
		first += s.Tokens
	}
	if first < tokens {
		c.mb.Check(fmt.Errorf("%w: they have %d tokens, the microbatch has %d", ErrSequences, first, tokens))
	}
	return c.places
}

// rows returns the elements of a sequence in a buffer that has the given number of elements for each token:
// the whole buffer if the microbatch has only this sequence, and otherwise a view. For the zero Buffer it
// returns the zero Buffer.
func (c *call) rows(b kernels.Buffer, s span, elements int) kernels.Buffer {
	return c.slice(b, s.first*elements, s.tokens*elements)
}

// slice returns n elements of a buffer.
func (c *call) slice(b kernels.Buffer, first, n int) kernels.Buffer {
	if n == b.N || b == (kernels.Buffer{}) {
		return b
	}
	return c.mb.Must(c.dev.Slice(b, first, n))
}
