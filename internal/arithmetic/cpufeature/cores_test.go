package cpufeature

import (
	"fmt"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestCapable(t *testing.T) {
	for want, capacities := range map[int][]string{
		0: {}, 1: {"1024\n", "160\n"}, 4: {"1024", "1024", "512", "600", "511", "400"}, 2: {"446", "446", "160", "160"},
	} {
		cpus := fstest.MapFS{"cpufreq/cpu_capacity": {Data: []byte("1024")}}
		for i, c := range capacities {
			cpus[fmt.Sprintf("cpu%d/cpu_capacity", 10*i)] = &fstest.MapFile{Data: []byte(c)}
		}
		require.Equal(t, want, capable(cpus))
	}
	require.Zero(t, capable(fstest.MapFS{"cpu0/cpu_capacity": {Data: []byte("fast")}}))
	require.True(t, Cores() >= 1 && Cores() <= runtime.NumCPU())
}
