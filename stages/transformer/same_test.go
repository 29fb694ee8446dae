package transformer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages/stagetest"
)

// TestSameNumbers trains with dropout and a tied table and requires the same bits for every
// split, including more stages than parts, with recompute and without, in both orders, with I
// and W apart (L9).
func TestSameNumbers(t *testing.T) {
	testkit.Slow(t)
	cfg := tiny
	cfg.Dropout = 0.1
	batch := sequences(random(t), cfg, 5)
	want := train(t, cfg, 1, 3, nil, batch)
	require.Len(t, want.losses, 6)
	for _, recompute := range []bool{false, true} {
		for stageCount := 1; stageCount <= cfg.Layers+4; stageCount++ {
			for name, plan := range map[string]schedule.Rule{
				"depth first": schedule.DepthFirst, "breadth first": schedule.BreadthFirst,
				"depth first, I and W apart":         stagetest.SplitRule(schedule.DepthFirst, 2),
				"breadth first, W after every other": stagetest.SplitRule(schedule.BreadthFirst, atTheEnd),
			} {
				t.Run(fmt.Sprintf("%d stages recompute %v %s", stageCount, recompute, name), func(t *testing.T) {
					cfg := cfg
					cfg.Recompute = recompute
					require.Equal(t, want, train(t, cfg, stageCount, 3, plan, batch))
				})
			}
		}
	}
	cfg.Seed++
	require.NotEqual(t, want.losses, train(t, cfg, 1, 3, nil, batch).losses, "another seed")
}
