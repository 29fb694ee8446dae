package runner_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
)

// indexes is a source whose entries are numbers, and records their indices.
func indexes(seen *[]int) runner.Source[number] {
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
		*seen = append(*seen, e.Index())
		e.Put("x", num(float64(e.Index())))
		return nil
	})
}

// The entries of a step come in the order of that step. The order of one step does not affect the next.
func TestInOrder(t *testing.T) {
	r := newRunner(t, config(rowsOf(schedule.Looped(1, 2))))
	order := []int{3, 0, 4, 1, 2}
	var seen []int
	source := indexes(&seen)
	for _, step := range []struct {
		source runner.Source[number]
		want   []int
	}{{runner.InOrder(source, [][]int{order}), order}, {source, []int{0, 1, 2, 3, 4}}, {runner.InOrder(runner.PerRank(source), [][]int{order}), order}} {
		seen = nil
		runStep(t, r, 5, step.source)
		require.Equal(t, step.want, slices.Compact(seen)) // with -tags invariants, all are made before as well
	}
	for _, fault := range []struct {
		m      int
		source runner.Source[number]
		says   string
	}{
		{5, runner.InOrder(source, [][]int{{0, 1, 2, 3}}), "an order of 4 microbatches for 1 replicas, but the step has 5 for 1"},
		{2, runner.InOrder(source, [][]int{{0}, {1}}), "an order of 2 microbatches for 2 replicas, but the step has 2 for 1"},
		{2, runner.InOrder(source, [][]int{{1, 1}}), "the order of replica 0 has microbatch 1: an order of 2 microbatches has each of 0 to 1 once"},
		{2, runner.InOrder(source, [][]int{{0, 2}}), "the order of replica 0 has microbatch 2"},
		{1, runner.InOrder[number](nil, [][]int{{0}}), "the source is nil"},
		{1, runner.PerRank(runner.InOrder(source, [][]int{{0}})), "an InOrder within another source"},
		{1, runner.InOrder(runner.Stream(func(context.Context) (int, error) { return 0, nil }, func(int, batchctx.Entry[number]) error { return nil }), [][]int{{0}}), "InOrder of a Stream"},
	} {
		_, err := r.Step(t.Context(), fault.m, fault.source)
		require.ErrorContains(t, err, fault.says)
	}
}

// Ranks of different processes whose orders or shapes differ do not begin a step. The error names both
// ranks, and its text does not depend on the number of microbatches.
func TestRanksCompareOrderAndShapes(t *testing.T) {
	links := newLinks(t, 2, 1, time.Minute)
	rows := rowsOf(schedule.Looped(2, 2))
	var runners []*runner.Runner[number]
	for rank := range 2 {
		runners = append(runners, newRunner(t, only(rows, rank, links)))
	}
	// step runs a step of m microbatches on both ranks, whose sources may differ.
	step := func(m int, source func(rank int) runner.Source[number]) (errs [2]error) {
		var ranks sync.WaitGroup
		for rank, r := range runners {
			ranks.Go(func() { _, errs[rank] = r.Step(t.Context(), m, source(rank)) })
		}
		ranks.Wait()
		return errs
	}
	put := func(_ context.Context, e batchctx.Entry[number]) error {
		e.Put("x", num(1))
		return nil
	}
	ordered := func(m, exchanged int) runner.Source[number] {
		order := make([]int, m)
		for i := range order {
			order[i] = m - 1 - i
		}
		order[exchanged], order[m-1] = order[m-1], order[exchanged]
		return runner.InOrder(runner.Indexed(put), [][]int{order})
	}
	shaped := func(last int) func(int) int {
		return func(m int) int { return m % 3 * last }
	}
	var first error
	for _, m := range []int{10, 99} {
		errs := step(m, func(rank int) runner.Source[number] { return ordered(m, rank) })
		for _, err := range errs {
			require.ErrorIs(t, err, transport.ErrRanks)
			require.ErrorContains(t, err, "rank 0 begins")
			require.ErrorContains(t, err, ", order ")
			require.ErrorContains(t, err, "rank 1 begins")
		}
		if first == nil {
			first = errs[0]
		}
		require.Len(t, errs[0].Error(), len(first.Error()))
		errs = step(m, func(rank int) runner.Source[number] { return runner.IndexedShapes(put, shaped(1+rank)) })
		for _, err := range errs {
			require.ErrorIs(t, err, transport.ErrRanks)
			require.ErrorContains(t, err, ", shapes ")
		}
		for _, err := range step(m, func(int) runner.Source[number] { return ordered(m, 1) }) {
			require.NoError(t, err)
		}
	}
}
