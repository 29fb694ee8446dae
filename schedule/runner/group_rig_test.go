package runner_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// rowsOf returns the stages of a placement: one for each stage of each copy, with weights whose
// products are not exact.
func rowsOf(p schedule.Placement) []*times {
	depth := p.Depth()
	rows := make([]*times, p.Stages())
	for row := range rows {
		s := row % depth
		rows[row] = &times{
			name: fmt.Sprintf("times%d", s), first: s == 0, last: s == depth-1, weight: 1 + 1/float64(3+s),
			param: fmt.Sprintf("w%d", s), grad: num(math.NaN()),
		}
	}
	return rows
}

// ranksOf is the configuration of a test of several ranks.
type ranksOf struct {
	placement schedule.Placement
	rule      schedule.Rule
	capacity  int
	split     bool // stages may split their backward
	stall     time.Duration
	change    func(cfg *runner.Config[number])
	spaces    []*memory.GCSpace[number] // by rank, made by group
}

// group returns a runner of the ranks that trains the rows.
func (r *ranksOf) group(t testing.TB, rows []*times) *runner.Runner[number] {
	t.Helper()
	cfg := config(rows)
	cfg.Spaces = nil
	cfg.Plan.Placement, cfg.Plan.Rule = r.placement, r.rule
	cfg.Topology = runner.Topology[number]{Capacity: r.capacity, Copy: copyNumber, Stall: r.stall}
	r.spaces = nil
	for range r.placement.Ranks {
		space := memory.NewGCSpace(classOf, func(number) int64 { return 8 })
		cfg.Spaces, r.spaces = append(cfg.Spaces, space), append(r.spaces, space)
	}
	if r.split {
		for i, row := range rows {
			cfg.Stages[i] = &splitting{times: row}
		}
	}
	if r.change != nil {
		r.change(&cfg)
	}
	g := newRunner(t, cfg)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// gatheredWeight is the value of a number of class Unsharded.
const gatheredWeight = -1e30

func classOf(h number) memory.Class {
	switch {
	case *h == gatheredWeight:
		return memory.Unsharded
	case *h > 0x1p500: // a copy of a weight
		return memory.FP8
	case 0 < *h && *h < 0x1p-600: // made by entryOf
		return memory.Entry
	}
	return memory.Activation
}

// sources returns a source for each rank.
func (r *ranksOf) sources() runner.Source[number] {
	sources := make([]runner.Source[number], r.placement.Ranks)
	for rank := range sources {
		sources[rank] = &counted{}
	}
	return runner.PerRank(sources...)
}

// numbers are the results of a step, which do not depend on the plan.
type numbers struct {
	losses []loss.Value
	norm   float64
	factor float64
	grads  map[string]float64
}

// numbersOf reads the accumulators of all uses.
func numbersOf(t testing.TB, result *runner.Result, rows []*times) numbers {
	t.Helper()
	factor, err := factorOf(result)
	require.NoError(t, err)
	n := numbers{result.Losses, result.GradNorm, factor, map[string]float64{}}
	for _, row := range rows {
		if grad, there := n.grads[row.param]; there && grad != *row.grad {
			t.Errorf("the uses of %q have totals %v and %v", row.param, grad, *row.grad)
		}
		n.grads[row.param] = *row.grad
	}
	return n
}

// alone trains the given number of stages on one rank.
func alone(t testing.TB, depth, m int) numbers {
	t.Helper()
	rows := rowsOf(schedule.Looped(1, depth))
	result, err := newRunner(t, config(rows)).Step(t.Context(), m, &counted{})
	require.NoError(t, err)
	return numbersOf(t, result, rows)
}

// released requires that all ranks' spaces are empty.
func (r *ranksOf) released(t testing.TB) {
	t.Helper()
	for rank, space := range r.spaces {
		require.Zero(t, space.Len(), "rank %d holds something", rank)
	}
}

// only returns the configuration of one rank of a chain, as if the rank had its own process.
func only(rows []*times, rank int, links *local.Links[number]) runner.Config[number] {
	cfg := config(rows)
	cfg.Schedule = "1f1b"
	cfg.Topology = runner.Topology[number]{
		Ranks: len(rows), First: rank, Transport: func(rank int) transport.Transport[number] { return links.Rank(rank) },
	}
	return cfg
}

// chained returns a test of 1F1B on a chain with one stage per rank.
func chained(ranks int) *ranksOf {
	return &ranksOf{placement: schedule.Looped(ranks, ranks), rule: schedule.OneFOneB, capacity: 1, stall: time.Minute}
}

// copyNumber copies numbers between ranks.
func copyNumber(_, _ int, h number) (number, error) { return num(*h), nil }

func newLinks(t testing.TB, ranks, capacity int, stall time.Duration) *local.Links[number] {
	t.Helper()
	links, err := local.New(local.Config[number]{Ranks: ranks, Capacity: capacity, Copy: copyNumber, Stall: stall})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, links.Close()) })
	return links
}
