package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
)

// peeking is a host that records the live buffers when the live bytes reach the planned maximum.
type peeking struct {
	*kernels.Host
	level   int64
	bytes   memory.ByClass
	buffers [memory.NumClasses]int
}

func (p *peeking) Alloc(class memory.Class, t kernels.DType, n int) (kernels.Buffer, error) {
	b, err := p.Host.Alloc(class, t, n)
	if err == nil && p.Live() == p.level {
		p.level = 0
		for info := range p.All() {
			p.bytes[info.Class] += info.Bytes
			p.buffers[info.Class]++
		}
	}
	return b, err
}

// TestOwnersAtThePeak compares the owners at the planned peak, which the log receives in advance,
// with the owners at the measured peak of the step.
func TestOwnersAtThePeak(t *testing.T) {
	for _, s := range []setup{
		{schedule: "1f1b", ranks: 2, stages: 4, model: tiny, capacity: 1},
		{schedule: "zb-v", ranks: 2, stages: 4, model: tiny, capacity: 1},
		{schedule: "gpipe", ranks: 1, stages: 2, model: tiny, capacity: 1},
	} {
		t.Run(s.String(), func(t *testing.T) {
			var devs []*peeking
			r := newRigOn(t, s, func(host *kernels.Host) kernels.Compute {
				devs = append(devs, &peeking{Host: host})
				return devs[len(devs)-1]
			})
			group := r.group(t, profileOf(t, s, 5))
			plan := prepare(t, group, 9, nil)
			bytes, buffers := make([]memory.ByClass, s.ranks), make([][memory.NumClasses]int, s.ranks)
			for o := range plan.Owners(1) {
				require.NotEmpty(t, o.Name)
				require.EqualValues(t, 1, o.Step)
				bytes[o.Rank][o.Class] += o.Bytes
				buffers[o.Rank][o.Class] += o.Buffers
			}
			for rank, dev := range devs {
				dev.level = dev.Live() + plan.Ranks[rank].Bound
			}
			runStep(t, group, 9, r.sources(fixed(5)))
			for rank, dev := range devs {
				require.Zero(t, dev.level, "the peak was recorded")
				dev.bytes[memory.Resident], dev.buffers[memory.Resident] = 0, 0
				require.Equal(t, dev.bytes, bytes[rank])
				require.Equal(t, dev.buffers, buffers[rank])
			}
		})
	}
}

// TestOwnersHaveOneOrder plans a step several times: the owners are the same every time, even if they
// differ only in their microbatches.
func TestOwnersHaveOneOrder(t *testing.T) {
	s := setup{schedule: "interleaved", ranks: 4, stages: 16, model: tiny, capacity: 1, lookAhead: 1}
	profile := profileOf(t, s, 5)
	var first []layout.Peak
	for i := range 8 {
		plan := prepare(t, newRig(t, s, true).group(t, profile), 24, nil)
		var peaks []layout.Peak
		for rank := range plan.Ranks {
			peaks = append(peaks, plan.Ranks[rank].Peak)
		}
		if i == 0 {
			first = peaks
		}
		require.Equal(t, first, peaks)
	}
}
