package plantest

import "fmt"
import "strings"

import "github.com/stretchr/testify/require"
import "github.com/weir-ml/weir/schedule"

// Written parses a plan from a list of actions for every rank.
func Written(t require.TestingT, placement string, microbatches int, lists ...string) *schedule.Plan {
	var b strings.Builder
	fmt.Fprintf(&b, "weir plan 1 name \"listed\" mode training ranks %d stages %d microbatches %d placement %s frozen none\n",
		len(lists), len(strings.Fields(placement)), microbatches, placement)
	for rank, list := range lists {
		fmt.Fprintf(&b, "rank %d:\n", rank)
		if list != "" {
			fmt.Fprintf(&b, "x 1 +0: %s\n", list)
		}
	}
	p, err := schedule.ParseText(strings.NewReader(b.String()))
	require.NoError(t, err)
	return p
}
