package parity_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages/transformer"
)

// roll ends the measuring of a step of a model in FP8, and adds its scales and histories.
func (n *numbers) roll(t testing.TB, model *transformer.Model) {
	t.Helper()
	_, err := model.RollScales(context.Background(), nil)
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

// TestFP8RanksSameNumbers holds L9, L13 and L14 for every recipe, under every schedule
// whose backward ascends, on one, two and four ranks, with recompute and without: losses,
// gradients, weights, moments, scales and histories are those of one rank, to the bit.
func TestFP8RanksSameNumbers(t *testing.T) {
	batches := threeBatches()
	for i, name := range fp8.Names {
		cfg := inFP8(t, name)
		cfg.FP8Attention = i%2 == 1
		one := newRanked(t, cfg, spread{rule: schedule.DepthFirst, placement: schedule.Looped(1, 1)})
		want := one.train(batches)
		one.close()
		require.Contains(t, want[0].tensors, "scales and histories")
		run := i
		for _, ranks := range []int{1, 2, 4} {
			for _, s := range schedule.Schedules() {
				if run++; !s.Ascends || cfg.Width > 64 && run%4 != 0 {
					continue // wide models are slow: every fourth way
				}
				placement, err := s.Place(ranks, ranks*s.PerRank)
				require.NoError(t, err)
				way := spread{
					rule: s.Rule, placement: placement, recompute: run%2 == 0,
					capacity: capacities[run%len(capacities)], lookAhead: run % 3,
				}
				t.Run(fmt.Sprintf("%s, %s on %d ranks, recompute %v", name, s.Name, ranks, way.recompute), func(t *testing.T) {
					r := newRanked(t, cfg, way)
					defer r.close()
					requireSame(t, want, r.train(batches))
				})
			}
		}
	}
}

// TestFP8RanksEvaluate: an evaluation between two steps has the losses of one rank, and
// changes no scale.
func TestFP8RanksEvaluate(t *testing.T) {
	cfg := inFP8(t, "delayed")
	batches := threeBatches()
	var want, wantEvaluated []numbers
	for i, plan := range []string{"depth-first", "1f1b", "zb-v", "dualpipev"} {
		s, err := schedule.Find(plan)
		require.NoError(t, err)
		ranks := 1 + i%3
		placement, err := s.Place(ranks, ranks*s.PerRank)
		require.NoError(t, err)
		r := newRanked(t, cfg, spread{rule: s.Rule, placement: placement, capacity: 1})
		first := r.train(batches[:1])
		sources, _ := r.sources(batches[1])
		result, err := r.group.Evaluate(context.Background(), len(batches[1]), sources)
		require.NoError(t, err)
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
