package plantest

import (
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// RequireWhole fails if a plan misses an action that it must run, runs one on the wrong
// rank, or has an invalid joined pair.
func RequireWhole(t require.TestingT, p *schedule.Plan) {
	require.Empty(t, newJudge(p, schedule.Unlimited).count(), p.Name)
	for _, program := range p.Programs {
		for _, s := range program {
			require.False(t, s.Body[len(s.Body)-1].Joined(), "%s: a body ends with half a pair", p.Name)
		}
	}
}
