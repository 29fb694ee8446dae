package parity_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

// lags are W directly after its I, one and three microbatches later, and after every I.
var lags = []int{0, 1, 3, microbatches}

// TestSplitSameNumbers checks L9 for plans with I and W apart: three steps with dropout, a tied
// table and uneven microbatches give the same losses, gradients, moments and weights as a loop
// without either. Some models have more stages than parts.
func TestSplitSameNumbers(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	batches := threeBatches()
	want := trainReference(t, small(), batches)
	ran := map[string]bool{}
	const most = 7
	for stages := 1; stages <= most; stages++ {
		for _, order := range orders {
			for _, lag := range lags {
				recompute := (stages+lag)%2 == 1
				r := newRig(t, small(), variant{rule: stagetest.Apart(order.rule, lag), group: order.group, stages: stages, recompute: recompute})
				requireSame(t, want, r.train(batches))
				require.Len(t, r.actions, 3*stages*microbatches)
				ran[fmt.Sprint(r.actions)] = true
				r.close()
			}
		}
	}
	// One group of everything is breadth-first; all others differ.
	require.Len(t, ran, most*(len(orders)-1)*len(lags))
}

// TestSplitUntied compares a model with a separate table for the head, and one without dropout,
// recomputed and not.
func TestSplitUntied(t *testing.T) {
	t.Parallel()
	batches := threeBatches()
	for name, change := range map[string]func(*transformer.Config){
		"untied":     func(c *transformer.Config) { c.Untied = true },
		"no dropout": func(c *transformer.Config) { c.Dropout = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := small()
			change(&cfg)
			want := trainReference(t, cfg, batches)
			for _, stages := range []int{1, 3, 5} {
				for _, recompute := range []bool{false, true} {
					r := newRig(t, cfg, variant{rule: stagetest.Apart(schedule.DepthFirst, 2), group: 2, stages: stages, recompute: recompute})
					requireSame(t, want, r.train(batches))
					r.close()
				}
			}
		})
	}
}

// TestSplitWithFrozenStages trains with some stages frozen: before everything that trains, in
// between, and within a sequence of parts. A frozen stage has no W, and does not prevent the
// others from having one.
func TestSplitWithFrozenStages(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.Untied = true
	type list = []stages.Stage[kernels.Buffer]
	freeze := stages.Freeze[kernels.Buffer]
	join := func(inner ...stages.Stage[kernels.Buffer]) stages.Stage[kernels.Buffer] {
		s, err := stages.Sequential("joined", inner...)
		require.NoError(t, err)
		return s
	}
	for name, change := range map[string]func(s list) list{ // of the embedding, three blocks and the head
		"a prefix":          func(s list) list { return list{freeze(s[0]), freeze(s[1]), s[2], s[3], s[4]} },
		"in between":        func(s list) list { return list{s[0], s[1], freeze(s[2]), s[3], s[4]} },
		"the head":          func(s list) list { return list{s[0], s[1], s[2], s[3], freeze(s[4])} },
		"all but the head":  func(s list) list { return list{freeze(s[0]), freeze(s[1]), freeze(s[2]), freeze(s[3]), s[4]} },
		"a prefix of one":   func(s list) list { return list{join(freeze(s[0]), freeze(s[1]), s[2], s[3], s[4])} },
		"in between in one": func(s list) list { return list{s[0], join(s[1], freeze(s[2]), s[3], freeze(s[4]))} },
	} {
		for _, recompute := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, recompute %v", name, recompute), func(t *testing.T) {
				gradients := func(rule schedule.Rule) []numbers {
					r := newRig(t, cfg, variant{rule: rule, stages: cfg.Layers + 2, recompute: recompute},
						func(c *runner.Config[kernels.Buffer]) { c.Stages = change(c.Stages) })
					defer r.close()
					result := r.step(threeBatches()[0])
					n := numbers{sum: math.Float64bits(result.Losses[0].Sum), norm: math.Float64bits(result.GradNorm)}
					for _, p := range r.model.Parameters() {
						n.tensor(t, r.dev, p.Name, p.Grad) // 0 if it is frozen
					}
					return []numbers{n}
				}
				want := gradients(schedule.DepthFirst)
				for _, lag := range lags {
					requireSame(t, want, gradients(stagetest.Apart(schedule.DepthFirst, lag)))
				}
			})
		}
	}
}
