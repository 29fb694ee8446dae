package parity_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	reference "github.com/weir-ml/weir/tests/parity"
)

// TestOneBigBatch compares a step of uneven microbatches with one big batch, in which a single
// sum over all tokens is divided once.
//
// The bound is derived as follows. Every element of the gradient is a sum of n terms, one for each
// token that contributes to it. The terms do not depend on how tokens are grouped, because no
// token's forward or backward depends on another sequence. Only the order of additions differs, and
// any order of n-1 float32 additions has an error of at most γ·Σ|term| with γ = nu/(1-nu),
// u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). The step adds in
// one such order. The big batch here is the sum of the separate sums of each sequence, added in
// float64, which is another order. So they differ by at most 2γ·Σ|term|; the addition of the two
// uses of the tied table counts as one more term.
//
// The float32 error of the terms themselves does not depend on the plan. The model in float64 shows that
// this error is small, and that the mean of the microbatches' means has an error that is larger than both
// by orders of magnitude.
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
		truth := newWide(r, cfg)
		truth.batch(batch...)
		result := r.step(batch)
		factor, err := factorOf(result)
		require.NoError(t, err)
		require.Equal(t, 1/truth.total, factor)
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
		require.InDelta(t, truth.loss/truth.total, result.Losses[0].Value, 1e-5)

		var norm, bound, grouping, rounding, naive, worst float64
		for name, g := range step {
			for i, have := range g {
				e := truth.grad[name][i]
				gamma := float64(e.terms+1) * 0x1p-24
				gamma /= 1 - gamma
				// The magnitudes are those of the exact gradient; in float32 they are correct to three
				// digits.
				limit := 2 * gamma * e.magnitude * 1.001
				off := math.Abs(float64(have) - alone[name][i])
				require.LessOrEqual(t, off, limit, "%s, element %d: %v in the step, %v in one batch", name, i, have, alone[name][i])
				if limit > 0 {
					worst = max(worst, off/limit)
				}
				square := func(x float64) float64 { return x * factor * x * factor }
				norm += square(e.sum)
				bound += square(limit)
				grouping += square(off)
				rounding += square(float64(have) - e.sum)
				naive += square(means[name][i]/factor - e.sum)
			}
		}
		norm = math.Sqrt(norm)
		relative := func(squares float64) float64 { return math.Sqrt(squares) / norm }
		t.Logf("%s: of the gradient's norm, grouping is %.2g where the bound is %.2g (at most %.2g of an element's), float32 %.2g, mean of means %.2g",
			name, relative(grouping), relative(bound), worst, relative(rounding), relative(naive))
		t.Logf("loss %.6f, mean of means %.6f", result.Losses[0].Value, lossOfMeans)
		require.Less(t, relative(rounding), 1e-5)
		require.Greater(t, relative(naive), 0.05, "a mean of means is another gradient")
		require.Greater(t, relative(naive), 1000*relative(bound))
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
