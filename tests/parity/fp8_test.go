package parity_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages/transformer"
)

// roll ends a step of a model in FP8, and adds its scales, its histories and the statistics of its tensors
// to the numbers.
func (n *numbers) roll(t testing.TB, model *transformer.Model) {
	t.Helper()
	report, err := model.RollScales(context.Background(), nil)
	require.NoError(t, err)
	state, err := model.MarshalScales()
	require.NoError(t, err)
	if state == nil {
		return
	}
	bits := make([]uint32, len(state))
	for i, b := range state {
		bits[i] = uint32(b)
	}
	n.tensors["scales and histories"] = bits
	var met []uint32
	for role, c := range report.All() {
		require.Zero(t, c.Frozen, role)
		met = append(met, uint32(role), uint32(c.Tensors), uint32(c.Unused), c.Amax,
			math.Float32bits(c.Least), math.Float32bits(c.Greatest), uint32(c.NonFinite), uint32(c.Saturated), uint32(c.Underflowed))
	}
	n.tensors["counters"] = met
}

// inFP8 returns the model of these tests in a recipe.
func inFP8(t testing.TB, name string) transformer.Config {
	t.Helper()
	cfg := small()
	recipe, err := fp8.Named(name)
	require.NoError(t, err)
	cfg.FP8 = recipe
	for fp8.Divides(recipe, "", cfg.Width) != nil {
		cfg.Width *= 2
	}
	if cfg.Width > 64 {
		cfg.Layers = 1
	}
	return cfg
}

// TestFP8RanksSameNumbers checks L9, L13 and L14 for every recipe, under every schedule with an ascending
// backward, on one, two and four ranks, with and without recompute. Losses, gradients, weights, moments,
// scales and histories must equal those of one rank to the bit. Half of the combinations run without -long.
func TestFP8RanksSameNumbers(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	batches := threeBatches()
	for i, name := range fp8.Names {
		cfg := inFP8(t, name)
		cfg.FP8Attention = i%2 == 1
		one := newRig(t, cfg, oneRank(schedule.DepthFirst, 1))
		want := one.train(batches)
		one.close()
		require.Contains(t, want[0].tensors, "scales and histories")
		run := i
		for _, ranks := range []int{1, 2, 4} {
			for _, s := range schedule.Schedules() {
				if run++; !s.AscendingBackward || cfg.Width > 64 && run%4 != 0 || run/2%2 != 0 && !*testkit.Long {
					continue // wide models are slow, so only every fourth combination runs
				}
				placement, err := s.Place(ranks, ranks*s.PerRank)
				require.NoError(t, err)
				way := variant{
					rule: s.Rule, placement: placement, recompute: run%2 == 0,
					capacity: capacities[run%len(capacities)], lookAhead: run % 3,
				}
				t.Run(fmt.Sprintf("%s, %s on %d ranks, recompute %v", name, s.Name, ranks, way.recompute), func(t *testing.T) {
					r := newRig(t, cfg, way)
					defer r.close()
					requireSame(t, want, r.train(batches))
				})
			}
		}
	}
}

// TestFP8RanksNearlySame runs the plans that are exceptions to L9 in every recipe, over three steps that
// extend the histories. As long as the weights are equal, all results that depend on maxima and counts are
// equal to the bit: losses, scales, histories and counters. Gradients, which are sums in a different order,
// differ at most by the bound of float32.
func TestFP8RanksNearlySame(t *testing.T) {
	t.Parallel()
	batches := threeBatches()
	for i, name := range fp8.Names {
		cfg := inFP8(t, name)
		cfg.FP8Attention = i%2 == 1
		one := newRig(t, cfg, oneRank(schedule.DepthFirst, 1))
		var want []numbers
		for _, batch := range batches {
			want = append(want, one.gradients(batch)...)
		}
		one.close()
		for plan, way := range disordered {
			way.recompute = i%2 == 0
			t.Run(name+", "+plan, func(t *testing.T) {
				r := newRig(t, cfg, way)
				defer r.close()
				for step, batch := range batches {
					w, have := &want[step], r.gradients(batch)[0]
					require.Equal(t, w.sum, have.sum)
					for _, same := range []string{"scales and histories", "counters"} {
						require.Equal(t, w.tensors[same], have.tensors[same], "%s of step %d", same, step)
					}
					require.InEpsilon(t, math.Float64frombits(w.norm), math.Float64frombits(have.norm), nearly)
					require.NotEqual(t, w.norm, have.norm, "the order of sums is another one")
					require.Less(t, apartBy(t, w, &have, " gradient"), nearly)
				}
			})
		}
	}
}

// flipped is the maximum difference of weights if some elements were rounded to other codes.
const flipped = 0.01

// TestFP8DisorderIsItsOwn checks that the result of a plan whose backward is out of order, over three updates,
// depends only on this order, and not on recompute, links, look-ahead or the number of ranks. The weights
// after the first update, and their loss, differ from those of one rank at most by the bound of float32.
// After that, an element between two codes may be rounded to the other one, which differs by an eighth of
// the element or, in NVFP4, by a half.
func TestFP8DisorderIsItsOwn(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	batches := threeBatches()
	for _, name := range fp8.Names {
		cfg := inFP8(t, name)
		one := newRig(t, cfg, oneRank(schedule.DepthFirst, 1))
		ascending := one.train(batches)
		one.close()
		var bidirectional []numbers
		for plan, way := range disordered {
			t.Run(name+", "+plan, func(t *testing.T) {
				run := func() []numbers {
					r := newRig(t, cfg, way)
					defer r.close()
					return r.train(batches)
				}
				want := run()
				for step, bound := range []struct{ loss, weights float64 }{{nearly, nearly}, {nearly, flipped}, {flipped, flipped}} {
					w, h := &ascending[step], &want[step]
					require.InEpsilon(t, math.Float64frombits(w.sum), math.Float64frombits(h.sum), bound.loss)
					require.Less(t, apartBy(t, w, h, " weight"), bound.weights)
				}
				if cfg.Width <= 64 { // wide models are slow
					way.recompute, way.capacity, way.lookAhead = true, schedule.Unlimited, 3
					requireSame(t, want, run())
				}
				if way.placement.Copies == 2 {
					if bidirectional == nil {
						bidirectional = want
					}
					requireSame(t, bidirectional, want)
				}
			})
		}
	}
}

// TestFP8RanksEvaluate checks that an evaluation between two steps has the losses of one rank and changes
// no scale.
func TestFP8RanksEvaluate(t *testing.T) {
	t.Parallel()
	cfg := inFP8(t, "delayed")
	batches := threeBatches()
	var want, wantEvaluated []numbers
	for i, plan := range []string{"depth-first", "1f1b", "zb-v", "dualpipev"} {
		ranks := 1 + i%3
		s, placement := plantest.Find(t, plan, ranks, 0)
		r := newRig(t, cfg, variant{rule: s.Rule, placement: placement, capacity: 1})
		first := r.train(batches[:1])
		result := r.evaluate(batches[1])
		evaluated := []numbers{{norm: uint64(result.Losses[0].Sum * 1e9)}}
		history := append(first, r.train(batches[1:])...)
		if want == nil {
			want, wantEvaluated = history, evaluated
		}
		require.Equal(t, wantEvaluated, evaluated, plan)
		requireSame(t, want, history)
		r.close()
	}
}
