package kernels_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// Every operation gives the same bits for any number of threads, at sizes that are divided into
// many uneven parts and at sizes that are not divided.
func TestThreadsChangeNoBit(t *testing.T) {
	for _, s := range [][4]int{{301, 210, 5, 1500}, {7, 12, 3, 11}} {
		outcome := func(threads int) map[string][]uint32 {
			b := newBenchWith(t, kernels.HostConfig{Threads: threads})
			return b.outcome(slices.Concat(b.operations(s[0], s[1], s[2], s[3]), b.lowPrecision(s[0], s[1])))
		}
		want := outcome(1)
		for _, threads := range []int{2, 3, 5} {
			got := outcome(threads)
			require.Len(t, got, len(want))
			for name, bits := range want {
				require.True(t, slices.Equal(bits, got[name]), "%s differs with %d threads at %v", name, threads, s)
			}
		}
	}
}
