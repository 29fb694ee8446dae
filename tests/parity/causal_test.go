package parity_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	reference "github.com/weir-ml/weir/tests/parity"
)

// long returns the configuration of a model whose context is longer than a tile of attention or of
// the head.
func long() transformer.Config {
	return transformer.Config{Vocabulary: 32, Width: 16, Layers: 2, Heads: 2, Context: 140, Seed: 3}
}

// changed returns the sequence with a different token at t. If rest is set, it also replaces everything
// after t.
func changed(s reference.Sequence, t int, rest bool) reference.Sequence {
	s.Tokens = slices.Clone(s.Tokens)
	for i := t; i < len(s.Tokens); i++ {
		s.Tokens[i] = (s.Tokens[i] + 1 + int32(i-t)%30) % 32
		if !rest {
			break
		}
	}
	return s
}

// TestHiddenStatesSeeNoFuture changes token t and everything after it. The hidden states before t must not
// change by a bit, and the states of t must change. The states are the outputs of a runner without the head.
func TestHiddenStatesSeeNoFuture(t *testing.T) {
	t.Parallel()
	var states []float32
	r := newRig(t, long(), oneRank(schedule.DepthFirst, 4), func(c *runner.Config[kernels.Buffer]) {
		dev := c.Spaces[0].(*kernels.Host)
		c.Stages, c.Plan.Placement = c.Stages[:3], schedule.Looped(1, 3)
		c.Outputs = func(_ int, out []kernels.Buffer) error {
			states = read(t, dev, out[0])
			_, err := dev.Release(out[0])
			return err
		}
	})
	defer r.close()
	hidden := func(s reference.Sequence) []float32 {
		r.evaluate([]reference.Sequence{s})
		return states
	}
	for _, n := range []int{2, 17, 130} {
		s := unevenBatch(uint64(n), 32, n)[0]
		want := hidden(s)
		for _, at := range []int{0, 1, 5, 16, 63, 64, 65, 127, 128, 129} {
			if at >= n {
				continue
			}
			for _, rest := range []bool{false, true} {
				have := hidden(changed(s, at, rest))
				width := long().Width
				require.Equal(t, bits(want[:at*width]), bits(have[:at*width]), "%d tokens, changed from %d on", n, at)
				require.NotEqual(t, bits(want[at*width:][:width]), bits(have[at*width:][:width]), "the changed token has other states")
				if at < n-1 {
					last := (n - 1) * width
					require.NotEqual(t, bits(want[last:]), bits(have[last:]), "and so have those after it")
				}
			}
		}
	}
}

// TestLossSeesNoFuture gives a weight to one token's loss at a time, so that the sum is that
// token's loss, through the whole model, in evaluation and in training with dropout.
func TestLossSeesNoFuture(t *testing.T) {
	t.Parallel()
	const n, at = 70, 66
	cfg := long()
	cfg.Dropout = 0.1
	r := newRig(t, cfg, oneRank(schedule.DepthFirst, 3), func(c *runner.Config[kernels.Buffer]) { c.FirstStep = 9 })
	defer r.close()
	s := unevenBatch(8, 32, n)[0]
	other := changed(s, at, true)
	one := func(s reference.Sequence, token int) reference.Sequence {
		s.Weights = make([]float32, n)
		s.Weights[token] = 1
		return s
	}
	for _, token := range []int{0, 1, 31, 63, 64, at - 1, at, n - 1} {
		a := r.evaluate([]reference.Sequence{one(s, token)}).Losses[0].Sum
		b := r.evaluate([]reference.Sequence{one(other, token)}).Losses[0].Sum
		require.Positive(t, a)
		if token < at {
			require.Equal(t, math.Float64bits(a), math.Float64bits(b), "the loss of token %d", token)
		} else {
			require.NotEqual(t, a, b, "the loss of token %d", token)
		}
	}

	// In training, if only labels before the change have weights, the loss and the gradients do not
	// change, because they do not depend on later tokens.
	before := func(s reference.Sequence) reference.Sequence {
		s.Weights = slices.Clone(s.Weights)
		clear(s.Weights[at:])
		return s
	}
	gradients := func(s reference.Sequence) []numbers {
		// A separate runner, so that both have the draws of the same step.
		r := newRig(t, cfg, oneRank(schedule.DepthFirst, 3))
		defer r.close()
		return r.gradients([]reference.Sequence{before(s)})
	}
	requireSame(t, gradients(s), gradients(other))
}
