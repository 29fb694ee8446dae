package placement_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/memory/placement"
)

func TestPlanOfNothing(t *testing.T) {
	layout, err := placement.Plan(context.Background(), &placement.Problem{}, placement.Options{})
	require.NoError(t, err)
	require.Zero(t, layout.Height)
	require.True(t, layout.Optimal)
}
