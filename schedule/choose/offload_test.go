package choose_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/simulate"
)

// With far memory a faster plan fits into the same near memory, unless the link to far memory is slow.
func TestFarMemoryFitsMore(t *testing.T) {
	const mib = 1 << 20
	request := func(far, farPerMiB int64) choose.Request {
		return choose.Request{Ranks: 4, Stages: 4, Microbatches: 16, Capacity: 1, Memory: 35 * mib, Far: far,
			Costs: &simulate.Costs{FarPerMiB: farPerMiB, Stages: []simulate.StageCosts{{F: 1000, I: 1000, W: 1000, Saved: 10 * mib}}}}
	}
	near, err := choose.Choose(request(0, 100))
	require.NoError(t, err)
	far, err := choose.Choose(request(100*mib, 100))
	require.NoError(t, err)
	require.Less(t, far.Best.Report.Makespan, near.Best.Report.Makespan)
	require.NotNil(t, far.Best.Plan.OffloadSlots)
	require.NoError(t, check.Links(far.Best.Plan, 1))
	require.LessOrEqual(t, far.Best.Peak, int64(35*mib))
	require.Positive(t, far.Best.FarPeak)
	for _, c := range far.All {
		if c.Plan != nil && c.Plan.OffloadSlots == nil {
			require.NotContains(t, c.Name(), "offload")
		}
	}

	little, err := choose.Choose(request(10*mib, 100))
	require.NoError(t, err)
	require.LessOrEqual(t, little.Best.FarPeak, int64(10*mib))
	slow, err := choose.Choose(request(100*mib, 2000)) // a copy takes as long as seven backwards
	require.NoError(t, err)
	require.Equal(t, near.Best.Report.Makespan, slow.Best.Report.Makespan)
	require.Nil(t, slow.Best.Plan.OffloadSlots, "%s offloads over a slow link", slow.Best.Name())
	bad := request(-1, 0)
	_, err = choose.Choose(bad)
	require.ErrorIs(t, err, schedule.ErrParams)
	bad = request(1, 0)
	bad.Runtime = schedule.PyTorch
	_, err = choose.Choose(bad)
	require.ErrorIs(t, err, schedule.ErrParams)
}
