package runner

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
)

// SourcesOf returns a source for each rank, whose entries have only the rank.
func SourcesOf[T any](t *testing.T, ranks int, source Source[T]) (list []Source[T]) {
	require.NoError(t, source.(multiRank).begin(0, ranks, &batch{replicas: 1}))
	for rank := range ranks {
		held := frames.New(frames.Config[T]{Rank: rank})
		list = append(list, Indexed(func(ctx context.Context, _ batchctx.Entry[T]) error {
			return source.Next(ctx, batchctx.Entry[T](held.EntryView()))
		}))
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

// EmptyReport encodes an empty report.
func EmptyReport() []byte { return new(report).append(nil) }

// Gather computes the result of all ranks from the result of one, which has measured its own
// peak.
func Gather(own RankResult, ranks []RankResult) *Result {
	r := &Result{Peak: own.Peak, PeakClasses: own.PeakClasses}
	r.gather(ranks)
	return r
}
