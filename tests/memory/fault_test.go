package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

var errRefused = errors.New("refused")

// failing is a host whose nth allocation fails; 0 means none.
type failing struct {
	*kernels.Host
	nth, count int
}

func (f *failing) Alloc(class memory.Class, t kernels.DType, n int) (kernels.Buffer, error) {
	if f.count++; f.count == f.nth {
		return kernels.Buffer{}, fmt.Errorf("allocation %d: %w", f.count, errRefused)
	}
	return f.Host.Alloc(class, t, n)
}

// TestNthAllocationFails makes each allocation of a planned step fail. Every buffer must be released.
// After every seventh failure a step without one must have the same numbers as before.
func TestNthAllocationFails(t *testing.T) {
	s := setup{schedule: "zb-v", ranks: 1, stages: 2, model: tiny}
	profile := profileOf(t, s, 5)
	var dev *failing
	r := newRigOn(t, s, func(host *kernels.Host) kernels.Compute {
		dev = &failing{Host: host}
		return dev
	})
	group := r.group(t, profile)
	const m = 3
	dev.count = 0
	want := runStep(t, group, m, r.sources(fixed(5)))
	for n, all := 1, dev.count; n <= all; n++ {
		dev.nth, dev.count = n, 0
		_, err := group.Step(t.Context(), m, r.sources(fixed(5)))
		require.ErrorIs(t, err, errRefused, "allocation %d of %d", n, all)
		require.Equal(t, resident(dev), dev.Live(), "allocation %d of %d", n, all)
		if n%7 == 0 {
			dev.nth = 0
			got := runStep(t, group, m, r.sources(fixed(5)))
			require.Equal(t, want.Losses[0].Sum, got.Losses[0].Sum)
			require.Equal(t, want.Ranks[0].Peak, got.Ranks[0].Peak)
		}
	}
}

// refusing is a Pager one of whose calls of Populate fails.
type refusing struct {
	memory.Pager
	left int // number of calls until the one that fails
}

func (p *refusing) Populate(mem []byte) error {
	if p.left--; p.left == 0 {
		return errRefused
	}
	return p.Pager.Populate(mem)
}

// TestPagesAreRefused makes the system refuse the pages of a step. The step ends with
// ErrOutOfMemory before its first action on that rank, and the next one succeeds.
func TestPagesAreRefused(t *testing.T) {
	s := setup{schedule: "1f1b", ranks: 2, stages: 2, model: tiny, capacity: 1}
	profile := profileOf(t, s, 5)
	pager, ranks := &refusing{Pager: memory.System{}}, 0
	r := newRigOn(t, s, func(host *kernels.Host) kernels.Compute {
		if ranks++; ranks == 1 {
			return host
		}
		paged, err := kernels.NewHost(kernels.HostConfig{Capacity: 256 << 20, Pages: pager})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, paged.Close()) })
		return paged
	})
	pager.left = 1
	group := r.group(t, profile)
	_, err := group.Step(t.Context(), 4, r.sources(fixed(5)))
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, "rank 1")
	for _, dev := range r.devs {
		require.Equal(t, resident(dev), dev.Live(), "everything is released")
	}
	runStep(t, group, 4, r.sources(fixed(5)))
}
