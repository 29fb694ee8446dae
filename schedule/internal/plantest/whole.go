package plantest

import (
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// RequireWhole fails where a plan does not run what it must, all of it on the right
// ranks, or has a joined pair that is none.
func RequireWhole(t require.TestingT, p *schedule.Plan) {
	require.Empty(t, newJudge(p, schedule.Unlimited).count(), p.Name)
	for _, program := range p.Programs {
		for _, s := range program {
			require.False(t, s.Body[len(s.Body)-1].Joined(), "%s: a body ends with half a pair", p.Name)
		}
	}
}
