package plantest

import (
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Clocks simulates a plan with instant messages. It returns the makespan and the span.
func Clocks(t require.TestingT, p *schedule.Plan, cost func(schedule.Action) int) (makespan, span int) {
	report, err := simulate.Run(p, &simulate.Costs{
		Stages: []simulate.StageCosts{{}}, Each: func(a schedule.Action) int64 { return int64(cost(a)) },
	}, schedule.Unlimited)
	require.NoError(t, err, p.Name)
	return int(report.Makespan), int(report.Span)
}
