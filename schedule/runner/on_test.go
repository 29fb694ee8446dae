package runner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

var (
	_ runner.Sharded[buffer] = (*kernels.Host)(nil)
	_ runner.Sharded[buffer] = (*kernels.Null)(nil)
)

// Spaces takes a slice of devices of any type, and devices of several types with type arguments.
func TestOn(t *testing.T) {
	a, b := device(t, false), device(t, true)
	require.Equal(t, []memory.Space[buffer]{a, b}, runner.Spaces([]kernels.Compute{a, b}...))
	hosts := []*kernels.Host{a.(*kernels.Host)}
	require.Equal(t, []memory.Space[buffer]{a}, runner.Spaces(hosts...))
	require.Equal(t, []memory.Space[buffer]{a, b}, runner.Spaces[buffer, memory.Space[buffer]](hosts[0], b.(*kernels.Null)))
}
