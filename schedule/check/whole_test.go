package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
)

// TestEveryPlanIsWhole checks all schedules for small numbers of ranks, stages and microbatches.
func TestEveryPlanIsWhole(t *testing.T) {
	if !*testkit.Long {
		t.Skip("takes a minute; run with -long")
	}
	for _, s := range schedule.Schedules() {
		for ranks := 1; ranks <= 16; ranks++ {
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			for microbatches := 1; microbatches <= 40; microbatches++ {
				plan, err := s.Rule(schedule.Params{Placement: placement, Microbatches: microbatches})
				require.NoError(t, err)
				plantest.RequireWhole(t, plan)
				plantest.Clocks(t, plan, plantest.Ticks)
			}
		}
	}
}
