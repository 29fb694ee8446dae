package runner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/placement"
)

// SourcesOf returns the source of each rank, as a step does.
func SourcesOf[T any](t *testing.T, ranks int, source Source[T]) (list []Source[T]) {
	shared := source.(sharer[T])
	require.NoError(t, shared.share(ranks, 1, 0))
	for rank := range ranks {
		list = append(list, shared.forRank(rank))
	}
	return list
}

// Recode decodes a report and encodes it again, for the fuzz test.
func Recode(b []byte) ([]byte, error) {
	var p report
	if err := p.decode(b); err != nil {
		return nil, err
	}
	return p.append(nil), nil
}

// Search returns the options of a runner's layout search for microbatches of one shape class.
func (r *Runner[T]) Search() placement.Options { return r.planner.search(nil) }

// EmptyReport encodes an empty report.
func EmptyReport() []byte { return new(report).append(nil) }

// Gather computes the result of all ranks from the result of one, which has measured its own
// peak.
func Gather(own RankResult, ranks []RankResult) *Result {
	r := &Result{Peak: own.Peak, PeakClasses: own.PeakClasses}
	r.gather(ranks)
	return r
}
