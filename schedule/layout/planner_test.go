package layout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule/layout"
)

// TestTheSearchOfAStepHasALimit checks that a search has a work limit by default, unless a time limit
// is set or the shapes differ.
func TestTheSearchOfAStepHasALimit(t *testing.T) {
	for given, want := range map[planning.Search]placement.Options{
		{}: {Nodes: 200_000}, {Nodes: 3}: {Nodes: 3}, {Time: time.Second}: {Time: time.Second},
	} {
		require.Equal(t, want, layout.SearchOptions(&planning.Step{Search: given}))
	}
	require.Zero(t, layout.SearchOptions(&planning.Step{Shapes: []int{0, 1}}))
}
