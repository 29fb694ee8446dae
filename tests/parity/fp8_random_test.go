package parity_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// seeded returns a source of random numbers, and logs its seed.
func seeded(t testing.TB) *rand.Rand {
	from := *plantest.SeedFlag
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("-seed=%d", from)
	return rand.New(rand.NewPCG(from, 0))
}

// unordered returns a rule whose plans have a random valid order. The forwards of a stage are in any order
// of microbatches, and the backwards in the ascending order that L9 requires. The rule also draws which
// stages split their backward. Equal parameters give equal plans.
func unordered(seed uint64) schedule.Rule {
	return func(p schedule.Params) (*schedule.Plan, error) {
		random := rand.New(rand.NewPCG(seed, uint64(p.Microbatches)))
		plan := &schedule.Plan{Name: "unordered", Mode: p.Mode, Placement: p.Placement, Microbatches: p.Microbatches, Frozen: p.Frozen}
		split := make([]bool, p.Placement.Stages())
		for s := range split {
			split[s] = random.IntN(2) == 0
		}
		computations := plantest.Computations(plan, func(stage, _ int) bool { return split[stage] })
		plantest.Shuffle(random, plan, computations, func(k schedule.Kind) bool { return k != schedule.F })
		return plan, nil
	}
}

// drawVariant draws a variant: a schedule with an ascending backward on ranks and stages that it
// supports, or a random order on stages placed anywhere.
func drawVariant(t testing.TB, random *rand.Rand) (way variant, name string) {
	t.Helper()
	way = variant{
		recompute: random.IntN(2) == 0, lookAhead: random.IntN(4),
		capacity: []int{0, 1, 2, schedule.Unlimited}[random.IntN(4)],
	}
	ranks := 1 + random.IntN(4)
	if random.IntN(2) == 0 {
		way.placement = schedule.Placement{Ranks: ranks, Rank: make([]int, 1+random.IntN(6))}
		for s := range way.placement.Rank {
			way.placement.Rank[s] = random.IntN(ranks)
		}
		way.rule = unordered(random.Uint64())
		return way, "unordered"
	}
	all := slices.DeleteFunc(schedule.Schedules(), func(s schedule.Schedule) bool { return !s.AscendingBackward })
	s := all[random.IntN(len(all))]
	var err error
	way.rule = s.Rule
	way.placement, err = s.Place(ranks, ranks*s.PerRank)
	require.NoError(t, err)
	return way, s.Name
}

// TestFP8AnyPlan draws recipes and plans. The losses, gradients, weights, moments, scales, histories and
// counters of three steps must equal those of one rank to the bit.
func TestFP8AnyPlan(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	batches := threeBatches()
	for _, name := range []string{"delayed", "current", "mxfp8", "nvfp4"} {
		for _, attention := range []bool{false, true} {
			cfg := inFP8(t, name)
			cfg.FP8Attention = attention
			one := newRig(t, cfg, oneRank(schedule.DepthFirst, 1))
			want := one.train(batches)
			one.close()
			for range 4 {
				way, plan := drawVariant(t, random)
				t.Run(fmt.Sprintf("%s, attention %v, %s, stages on %v, capacity %d, look-ahead %d, recompute %v",
					name, attention, plan, way.placement.Rank, way.capacity, way.lookAhead, way.recompute), func(t *testing.T) {
					r := newRig(t, cfg, way)
					defer r.close()
					requireSame(t, want, r.train(batches))
				})
			}
		}
	}
}

// TestFP8AnyOrderOfSequences runs the same sequences in another order, without dropout and stochastic
// rounding, which depend on the number of the microbatch. Neither the losses, which are exact sums, nor the
// scales, which are maxima, may change.
func TestFP8AnyOrderOfSequences(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	for _, recipe := range []fp8.Recipe{
		fp8.DelayedScaling{Format: fp8.Hybrid, History: 2}, fp8.DelayedScaling{Format: fp8.Hybrid, MostRecent: true, Margin: 1},
		fp8.CurrentScaling{Format: fp8.Hybrid}, fp8.MXFP8{Format: fp8.Pair{Forward: fp8.E4M3, Backward: fp8.E4M3}}, fp8.NVFP4{Nearest: true},
	} {
		cfg := inFP8(t, recipe.String())
		cfg.FP8, cfg.Dropout = recipe, 0
		one := newRig(t, cfg, oneRank(schedule.DepthFirst, 1))
		var want []numbers
		for _, batch := range threeBatches() {
			want = append(want, one.gradients(batch)...)
		}
		one.close()
		way, plan := drawVariant(t, random)
		t.Run(fmt.Sprintf("%v, %s, stages on %v", recipe, plan, way.placement.Rank), func(t *testing.T) {
			r := newRig(t, cfg, way)
			defer r.close()
			for step, batch := range threeBatches() {
				random.Shuffle(len(batch), func(i, k int) { batch[i], batch[k] = batch[k], batch[i] })
				have := r.gradients(batch)[0]
				require.Equal(t, want[step].sum, have.sum)
				for _, same := range []string{"scales and histories", "counters"} {
					require.Equal(t, want[step].tensors[same], have.tensors[same], "%s of step %d", same, step)
				}
				require.Less(t, apartBy(t, &want[step], &have, " gradient"), nearly)
			}
		})
	}
}
