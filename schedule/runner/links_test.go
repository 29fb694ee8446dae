package runner_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/transporttest"
)

// copyNumber is how numbers cross a rank.
func copyNumber(_, _ int, h number) (number, error) { return num(*h), nil }

func newLinks(t testing.TB, ranks, capacity int, stall time.Duration) *runner.Links[number] {
	t.Helper()
	links, err := runner.NewLinks(runner.LinksConfig[number]{Ranks: ranks, Capacity: capacity, Copy: copyNumber, Stall: stall})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, links.Close()) })
	return links
}

func TestLinksConform(t *testing.T) {
	transporttest.Run(t, transporttest.Subject[number]{
		New: func(t testing.TB, ranks, capacity int) []runner.Transport[number] {
			links := newLinks(t, ranks, capacity, 0)
			var ends []runner.Transport[number]
			for rank := range ranks {
				ends = append(ends, links.Rank(rank))
			}
			return ends
		},
		Make:    func(_ int, value float64) (number, error) { return num(value), nil },
		Read:    func(_ int, h number) (float64, error) { return *h, nil },
		Write:   func(_ int, h number, value float64) error { *h = value; return nil },
		Release: func(int, number) error { return nil },
	})
}
