package lower_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// receiveBuffers returns the number of receive buffers that each rank needs: with one pool, and
// with a pool for each stage and direction. A buffer is in use from its receive to the last
// computation of its stage and microbatch.
func receiveBuffers(p *schedule.Plan) (pooled, apart []int) {
	type pool struct {
		stage int
		kind  schedule.Kind
	}
	for _, list := range plantest.Lists(p) {
		last := map[plantest.Cell]int{}
		for i, a := range list {
			if a.Kind().Compute() {
				last[plantest.Cell{Stage: a.Stage(), Mb: a.Microbatch()}] = i
			}
		}
		held := map[plantest.Cell][]pool{}
		now, most := map[pool]int{}, map[pool]int{}
		all, peak := 0, 0
		for i, a := range list {
			at := plantest.Cell{Stage: a.Stage(), Mb: a.Microbatch()}
			if k := a.Kind(); k == schedule.RecvF || k == schedule.RecvB {
				in := pool{a.Stage(), k}
				held[at] = append(held[at], in)
				now[in]++
				all++
				most[in], peak = max(most[in], now[in]), max(peak, all)
			}
			if last[at] == i {
				for _, in := range held[at] {
					now[in]--
					all--
				}
			}
		}
		sum := 0
		for _, n := range most {
			sum += n
		}
		pooled, apart = append(pooled, peak), append(apart, sum)
	}
	return pooled, apart
}

// PyTorch used to keep a buffer for every microbatch at each end of an edge: 1,920 for interleaved
// 1F1B on 8 ranks with 2 stages each and 64 microbatches. With one pool per rank, 129 buffers
// suffice if receives are as early as in PyTorch's lowering, and 121 if each receive immediately
// precedes the computation that takes its message.
func TestReceiveBuffersOfInterleaved(t *testing.T) {
	p := plantest.Made(t, schedule.Interleaved, schedule.Params{Placement: schedule.Looped(8, 16), Microbatches: 64})
	for _, test := range []struct {
		plan *schedule.Plan
		want int
	}{
		{lowered(t, p, schedule.Unlimited), 121}, {lowered(t, p, 1), 128}, {lowered(t, p, 0), 136},
	} {
		pooled, _ := receiveBuffers(test.plan)
		require.Equal(t, test.want, sum(pooled))
	}
}

// The published numbers of buffers for the hand-written ZB-V on 4 ranks (pytorch/pytorch #196465) are 43
// with a pool for each stage and direction, and 33 with one pool per rank. Plans of Transfers need fewer.
func TestReceiveBuffersOfZBV(t *testing.T) {
	for _, microbatches := range []int{8, 16} {
		p := plantest.Made(t, schedule.ZBV, schedule.Params{Placement: schedule.Wave(4, 8), Microbatches: microbatches})
		pooled, apart := receiveBuffers(lowered(t, p, schedule.Unlimited))
		require.Equal(t, 36, sum(apart))
		require.Equal(t, 28, sum(pooled))
	}
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}
