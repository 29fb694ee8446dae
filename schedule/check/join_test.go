package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// A joined pair runs as a unit. If one of its actions depends on the other through other ranks, the
// pair waits for itself.
func TestJoinedPairThatNeedsItself(t *testing.T) {
	alone := plantest.FromText(t, "0 1 0", 2, "0F0 2F0 2B0 0F1 2F1 2B1 0B0 0B1", "1F0 1B0 1F1 1B1")
	require.NoError(t, check.Plan(alone))
	joined := plantest.FromText(t, "0 1 0", 2, "0F0 2F0 2B0 0F1& 0B0 2F1 2B1 0B1", "1F0 1B0 1F1 1B1")
	require.NoError(t, check.Plan(joined))
	for _, test := range []struct{ first, second, text string }{
		{"0F0 2F0 2B0 0F1& 0B0 2F1 2B1 0B1", "1F0 1F1 1B0 1B1", "Ranks 0 and 1 wait for each other: rank 0 is at action 3, 0F1 joined with 0B0," +
			" and waits for 1B0 of rank 1; rank 1 is at action 1, 1F1, and waits for 0F1 of rank 0;" +
			" remove the join of 0F1 and 0B0, because a joined pair starts only when both actions can run."},
		{"0F0& 2F0 2B0 0F1 0B0 2F1 2B1 0B1", "1F0 1B0 1F1 1B1", "Ranks 0 and 1 wait for each other: rank 0 is at action 0, 0F0 joined with 2F0," +
			" and waits for 1F0 of rank 1; rank 1 is at action 0, 1F0, and waits for 0F0 of rank 0;" +
			" remove the join of 0F0 and 2F0, because a joined pair starts only when both actions can run."},
	} {
		p := plantest.FromText(t, "0 1 0", 2, test.first, test.second)
		err := check.Plan(p)
		plantest.RequireCodes(t, err, check.Deadlock)
		require.ErrorContains(t, err, test.text)
		p.Programs[0][0].Body = append([]schedule.Action(nil), p.Programs[0][0].Body...)
		for i, a := range p.Programs[0][0].Body {
			p.Programs[0][0].Body[i] = a.WithJoin(false)
		}
		require.NoError(t, check.Plan(p))
	}

	// With transfers, the receives of both actions precede the pair; otherwise the pair runs too
	// early.
	p := plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0F1& 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1", secondSends)
	plantest.RequireCodes(t, check.Plan(p), check.BadJoin)
	p = plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0F1& 0B0 0SEND_F1 0RECV_B0 0RECV_B1 0B1", secondSends)
	plantest.RequireCodes(t, check.Plan(p), check.Order)
	p = plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0RECV_B0 0F1& 0B0 0SEND_F1 0RECV_B1 0B1", secondSends)
	require.NoError(t, check.Plan(p))
}
