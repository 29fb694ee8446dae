package transformer_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// packing is a packed step: the numbers of the sequences of each microbatch.
type packing [][]int

// of returns the packed microbatches, and the function for Model.Sequences.
func (p packing) of(batch []sequence) ([]sequence, func(int) []transformer.Sequence) {
	packs, numbered := make([]sequence, len(p)), make([][]transformer.Sequence, len(p))
	for mb, numbers := range p {
		for _, n := range numbers {
			q := &batch[n]
			packs[mb].tokens = append(packs[mb].tokens, q.tokens...)
			packs[mb].labels = append(packs[mb].labels, q.labels...)
			packs[mb].weights = append(packs[mb].weights, q.weights...)
			numbered[mb] = append(numbered[mb], transformer.Sequence{Number: n, Tokens: len(q.tokens)})
		}
	}
	return packs, func(mb int) []transformer.Sequence { return numbered[mb] }
}

// alone returns one sequence a microbatch, in the same order.
func (p packing) alone() (one packing) {
	for _, numbers := range p {
		for _, n := range numbers {
			one = append(one, []int{n})
		}
	}
	return one
}

// TestPackedSequences checks that a packed step has the same losses and gradients as a step with one
// sequence per microbatch in the same order, bit for bit: with dropout, with B or with I and W, with
// recompute, and with no, some or all logits kept.
func TestPackedSequences(t *testing.T) {
	cfg := tiny
	cfg.Context, cfg.Dropout, cfg.KeepLogits = 150, 0.2, transformer.NoLogits
	batch := sequences(random(t), cfg, 7)
	cfg.Context = 600 // its logits are more than one tile
	p := packing{{3, 0}, {1}, {6, 2, 5, 4}}
	split := func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DepthFirst(p)
		if err != nil || p.Mode == schedule.ForwardOnly {
			return plan, err
		}
		return lower.Split(plan), nil
	}
	for name, change := range map[string]func(cfg *transformer.Config){
		"B":           func(*transformer.Config) {},
		"recompute":   func(cfg *transformer.Config) { cfg.Recompute = true },
		"all logits":  func(cfg *transformer.Config) { cfg.KeepLogits = transformer.AllLogits },
		"some logits": func(cfg *transformer.Config) { cfg.KeepLogits = 4 * 256 * 11 },
	} {
		for _, rule := range []schedule.Rule{schedule.DepthFirst, split} {
			cfg := cfg
			change(&cfg)
			run := func(p packing) (total []float64, gradients map[string][]uint32) {
				dev := newHost(t)
				m := newModel(t, dev, cfg, 2)
				r := newRunner(t, dev, m.Stages(), func(c *runner.Config[kernels.Buffer]) { c.Plan.Rule = rule })
				var packs []sequence
				packs, m.Sequences = p.of(batch)
				result := runStep(t, r, len(packs), &source{dev, packs})
				require.Zero(t, result.Excess)
				loss := &result.Losses[0]
				require.EqualValues(t, len(batch), loss.Count)
				gradients = map[string][]uint32{}
				for _, p := range m.Parameters() {
					gradients[p.Name] = bits(read(t, dev, p.Grad))
				}
				require.NoError(t, r.Close())
				return []float64{loss.Sum, loss.Weight}, gradients
			}
			wantTotal, want := run(p.alone())
			haveTotal, have := run(p)
			require.Equal(t, want, have, name)
			require.Equal(t, wantTotal, haveTotal, name)
		}
	}
}

// TestPackedRefuses checks that sequences that are not those of the microbatch end the step.
func TestPackedRefuses(t *testing.T) {
	dev := newHost(t)
	m := newModel(t, dev, tiny, 2)
	r := newRunner(t, dev, m.Stages(), nil)
	batch := sequences(random(t), tiny, 1)
	batch[0] = sequence{make([]int32, 12), make([]int32, 12), make([]float32, 12)}
	for _, c := range []struct {
		tokens []int
		err    error
	}{{[]int{5, 8}, transformer.ErrSequences}, {[]int{5, 6}, transformer.ErrSequences}, {[]int{12, 0}, transformer.ErrSequences}, {[]int{11, 1}, transformer.ErrTooLong}, {[]int{10, 2}, nil}} {
		m.Sequences = func(int) (all []transformer.Sequence) {
			for i, n := range c.tokens {
				all = append(all, transformer.Sequence{Number: i, Tokens: n})
			}
			return all
		}
		_, err := r.Step(context.Background(), 1, &source{dev, batch})
		require.ErrorIs(t, err, c.err, "%v", c.tokens)
	}
	require.NoError(t, r.Close())
}
