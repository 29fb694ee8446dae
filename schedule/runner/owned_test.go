package runner_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/runner"
)

// TestOwned checks that replicas own every element once, in their order, and that a short parameter
// belongs to one of them.
func TestOwned(t *testing.T) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	defer host.Close()
	for _, n := range []int{1, 7, 1000, 1 << 16, 1<<20 + 13, 3_000_001} {
		for _, replicas := range []int{1, 2, 3, 4, 64, 100} {
			covered, owners := 0, 0
			for replica := range replicas {
				first, count := runner.ShardRange[kernels.Buffer](host, fmt.Sprint("w", n), n, replica, replicas)
				if count > 0 {
					require.Equal(t, covered, first, "%d elements, replica %d of %d", n, replica, replicas)
					owners++
				}
				covered += count
			}
			require.Equal(t, n, covered)
			require.Equal(t, min(replicas, host.Parts(n)), owners)
		}
	}
}
