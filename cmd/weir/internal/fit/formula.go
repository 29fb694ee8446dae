package fit

import (
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Formula is a number of bytes: a sum of products of numbers and of the sizes below, such as "e*s*b*h/q +
// 4*s*b/q". Each product is computed first, then divided and rounded up.
//
//	s  tokens of a sequence on a rank      b  sequences of a microbatch
//	e  bytes of an element                 h  hidden size
//	n  width of queries                    o  width of attention's output
//	k  width of keys, and of values        a  attention heads
//	f  inner width of the MLP              g  2 if the MLP is gated, else 1
//	v  vocabulary                          w  1 if weight gradients have buffers of their own, else 0
//	t  tensor parallelism                  q  t with sequence parallelism, else 1
//	S  tokens of the whole sequence        d  1 with dropout of hidden states, else 0
//	l  statistics of a norm                j  part of a head without position
//	E  experts                             x  experts of a token
//	m  inner width of an expert            u  inner width of the shared experts
//	z  tensor parallelism of an expert     y  1 if ranks share the sequence between products, else 0
//	r  part of a head with position        c  rank of queries
//	i  rank of keys and values            p  bytes of an element of a product's input, as it is kept
//	P  1 if products are in FP8, else 0    D  1 with dropout of scores, else 0
//	H  width of a head
type Formula string

// Sizes are the values of a formula's letters.
type Sizes map[byte]int64

const maxBytes = 1 << 48 // upper bound for a tensor

// bytes returns the number of bytes. It returns an error for more than 2^48 bytes and for an
// unknown letter.
func (f Formula) bytes(s Sizes) (total int64, err error) {
	for term := range strings.SplitSeq(string(f), "+") {
		above, below := int64(1), int64(1)
		for i, factors := range strings.Split(strings.TrimSpace(term), "/") {
			for factor := range strings.SplitSeq(factors, "*") {
				n, known := s[factor[0]]
				if number, err := strconv.ParseInt(factor, 10, 64); err == nil {
					n, known = number, true
				}
				if !known || n < 0 {
					return 0, diagnostic.Errorf(ErrModel, "the formula %q has no %q", f, factor)
				}
				if i == 0 {
					above = product(above, n)
				} else {
					below = product(below, n)
				}
			}
		}
		if total += above/below + min(above%below, 1); total > maxBytes {
			return 0, diagnostic.Errorf(ErrSetup, "a tensor of %q bytes has more than 2^48: give a shorter sequence or a smaller microbatch", f)
		}
	}
	return total, nil
}

// sizes returns the values for a model and a setup.
func (m *Model) sizes(s *Setup) Sizes {
	flag := func(is bool) int64 {
		if is {
			return 1
		}
		return 0
	}
	v := Sizes{
		's': int64(s.Sequence / s.Context), 'b': int64(s.Microbatch), 'e': 2, 'h': int64(m.Hidden), 'n': int64(m.queryWidth()), 'o': int64(m.valueWidth()),
		'k': int64(m.KVHeads * m.HeadDim), 'a': int64(m.Heads), 'f': int64(m.FFN), 'g': 1 + flag(m.Gated), 'v': int64(m.padded(s.Tensor)), 'w': flag(s.Unfused),
		't': int64(s.Tensor), 'q': 1, 'S': int64(s.Sequence), 'd': flag(m.Dropout), 'D': flag(m.AttentionDropout), 'H': max(int64(m.HeadDim), 1), 'l': 1 + flag(m.LayerNorm),
		'E': int64(m.Experts), 'x': int64(m.TopK), 'm': int64(m.ExpertFFN), 'u': int64(m.SharedFFN), 'z': int64(s.ExpertTensor), 'y': 0, 'P': 0,
	}
	if s.Precision == FP32 {
		v['e'] = 4
	}
	if v['p'] = v['e']; s.Precision == FP8 {
		v['p'], v['P'] = 1, 1
	}
	if s.SequenceParallel {
		v['q'], v['y'] = v['t'], min(v['t']-1, 1)
	}
	if l := m.Latent; l != nil {
		v['c'], v['i'], v['r'], v['j'] = int64(l.Query), int64(l.KV), int64(l.Rope), int64(l.Nope)
	}
	return v
}
