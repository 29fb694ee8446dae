package parity_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	reference "github.com/weir-ml/weir/tests/parity"
)

// weights returns the bits of all weights of the model.
func (r *rig) weights() map[string][]uint32 {
	var n numbers
	for _, p := range r.model.Parameters() {
		n.tensor(r.t, r.dev, p.Name, p.Weight)
	}
	return n.tensors
}

// TestFactorOnce checks L10: the factor of a result is 1 over the total weight, it can be taken only
// once, by Model.Update or by Result.Update, and a step without an update has none.
func TestFactorOnce(t *testing.T) {
	t.Parallel()
	batch := unevenBatch(6, 32, 3, 9, 2)
	r := newRig(t, small(), oneRank(schedule.DepthFirst, 2))
	defer r.close()
	total := 0.0
	for _, s := range batch {
		for _, w := range s.Weights {
			total += float64(w)
		}
	}

	before := r.weights()
	result := r.step(batch)
	factor, err := factorOf(result)
	require.NoError(t, err)
	require.Equal(t, 1/total, factor)
	_, err = factorOf(result)
	require.ErrorIs(t, err, runner.ErrUpdated)
	require.ErrorIs(t, r.model.Update(update, result, maxNorm), runner.ErrUpdated)
	require.Equal(t, before, r.weights(), "nothing was updated")
	require.Zero(t, r.model.Updates)

	result = r.step(batch)
	require.NoError(t, r.model.Update(update, result, maxNorm))
	after := r.weights()
	require.NotEqual(t, before, after)
	require.ErrorIs(t, r.model.Update(update, result, maxNorm), runner.ErrUpdated)
	require.Equal(t, after, r.weights(), "the second update did nothing")
	require.EqualValues(t, 1, r.model.Updates)

	require.ErrorIs(t, r.model.Update(update, r.evaluate(batch), maxNorm), runner.ErrNoUpdate)
	for _, s := range batch {
		clear(s.Weights)
	}
	result = r.step(batch)
	require.Equal(t, loss.Empty, result.Outcome)
	require.ErrorIs(t, r.model.Update(update, result, maxNorm), runner.ErrNoUpdate)
	require.Equal(t, after, r.weights())
}

// TestOneBigBatch compares a step of uneven microbatches with one big batch: the separate gradients of
// each sequence, added in float64. No token's forward or backward depends on another sequence, so only
// the order of float32 additions differs. Both are divided once by the total weight; the mean of the
// microbatches' means is another gradient and another loss.
func TestOneBigBatch(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.Dropout = 0
	batch := unevenBatch(21, 32, 1, 16, 3, 9, 2, 14)
	for name, v := range map[string]variant{
		"2 stages":                               oneRank(schedule.DepthFirst, 2),
		"3 stages in groups of 4":                {rule: schedule.DepthFirst, placement: schedule.Looped(1, 3), group: 4, lookAhead: 1},
		"5 stages with recompute, breadth-first": {rule: schedule.BreadthFirst, placement: schedule.Looped(1, 5), recompute: true, lookAhead: 2},
	} {
		r := newRig(t, cfg, v)
		// These weights distinguish tokens, so that microbatches differ in loss.
		for _, p := range r.model.Parameters() {
			if p.Decay {
				require.NoError(t, r.dev.Normal(p.Weight, 0.25, kernels.Key{Seed: 2, Op: kernels.OpKey(p.Name)}))
			}
		}
		total := 0.0
		for _, s := range batch {
			for _, w := range s.Weights {
				total += float64(w)
			}
		}

		result := r.step(batch)
		factor, err := factorOf(result)
		require.NoError(t, err)
		require.Equal(t, 1/total, factor)
		step := r.values()

		alone := make(map[string][]float64) // sum of the gradients of the sequences, each computed separately
		means := make(map[string][]float64) // sum over the gradients of each sequence divided by its own weight
		var sum reference.ExactSum
		lossOfMeans := 0.0
		for _, s := range batch {
			one := r.step([]reference.Sequence{s})
			sum.Add(one.Losses[0].Sum)
			lossOfMeans += one.Losses[0].Value / float64(len(batch))
			divisor, err := factorOf(one)
			require.NoError(t, err)
			for name, g := range r.values() {
				for i, x := range g {
					if len(alone[name]) < len(g) {
						alone[name], means[name] = make([]float64, len(g)), make([]float64, len(g))
					}
					alone[name][i] += float64(x)
					means[name][i] += float64(x) * divisor / float64(len(batch))
				}
			}
		}
		require.Equal(t, sum.Float64(), result.Losses[0].Sum, "sums of losses are exact")

		var norm, grouping, naive float64
		for name, g := range step {
			for i, have := range g {
				want := alone[name][i]
				norm += want * want
				grouping += (float64(have) - want) * (float64(have) - want)
				naive += (means[name][i]/factor - want) * (means[name][i]/factor - want)
			}
		}
		require.Less(t, math.Sqrt(grouping/norm), nearly, name)
		require.Greater(t, math.Sqrt(naive/norm), 0.05, "a mean of means is another gradient")
		require.Greater(t, math.Abs(lossOfMeans/result.Losses[0].Value-1), 0.01, "and another loss")
		r.close()
	}
}

// values reads all gradients.
func (r *rig) values() map[string][]float32 {
	all := map[string][]float32{}
	for _, p := range r.model.Parameters() {
		all[p.Name] = read(r.t, r.dev, p.Grad)
	}
	return all
}

// TestOrderOfMicrobatches runs the same microbatches in another order. Sums of losses are exact, so the
// loss is equal to the bit. Without dropout, the gradient is equal up to rounding.
func TestOrderOfMicrobatches(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.Dropout = 0
	batch := unevenBatch(22, 32, 5, 16, 1, 11, 7)
	reversed := make([]reference.Sequence, len(batch))
	for i, s := range batch {
		reversed[len(batch)-1-i] = s
	}
	r := newRig(t, cfg, oneRank(schedule.DepthFirst, 3))
	defer r.close()
	want, have := r.gradients(batch)[0], r.gradients(reversed)[0]
	require.Equal(t, want.sum, have.sum)
	apart := apartBy(t, &want, &have, " gradient")
	require.Positive(t, apart, "float32 sums do depend on their order")
	require.Less(t, apart, 1e-5)
}
