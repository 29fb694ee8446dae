package runner_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// FuzzReport decodes bytes from another rank: they are refused, or encode to the same bytes.
func FuzzReport(f *testing.F) {
	empty := runner.EmptyReport()
	f.Add(empty)
	f.Add(slices.Concat(empty, []byte("a record")))
	two := slices.Concat(empty, make([]byte, 16))
	binary.LittleEndian.PutUint32(two[4:], 2)
	f.Add(two)
	binary.LittleEndian.PutUint32(empty[4:], 1<<31)
	f.Add(slices.Clone(empty))
	f.Fuzz(func(t *testing.T, b []byte) {
		if again, err := runner.Recode(b); err == nil {
			require.Equal(t, b, again)
		}
	})
}

// meddling changes the reports that one rank receives.
type meddling[T any] struct {
	*local.Endpoint[T]
	change func(all [][]byte) [][]byte
}

func (m meddling[T]) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	all, err := m.Endpoint.Exchange(ctx, mine)
	if err == nil {
		all = m.change(slices.Clone(all))
	}
	return all, err
}

// TestReportsThatDoNotFitAreRefused changes the report of a rank in transit.
func TestReportsThatDoNotFitAreRefused(t *testing.T) {
	for want, change := range map[string]func(all [][]byte) [][]byte{
		"1 ranks answered of 2": func(all [][]byte) [][]byte { return all[:1] },
		"rank 1: not a report":  func(all [][]byte) [][]byte { all[1] = all[1][:20]; return all },
		"0 bytes":               func(all [][]byte) [][]byte { all[1] = nil; return all },
		"rank 1 ran step 9 of 3": func(all [][]byte) [][]byte {
			all[1] = slices.Clone(all[1])
			all[1][16] = 9
			return all
		},
		"fewer parameters": func(all [][]byte) [][]byte {
			all[1] = slices.Clone(all[1])
			all[1][4] = 0
			return all
		},
		"loss": func(all [][]byte) [][]byte { all[1] = all[1][:len(all[1])-1]; return all },
		"more parameters": func(all [][]byte) [][]byte {
			all[1] = slices.Insert(slices.Clone(all[1]), len(runner.EmptyReport()), make([]byte, 8)...)
			all[1][4] += 1
			return all
		},
	} {
		rows := rowsOf(schedule.Looped(2, 2))
		links := newLinks(t, 2, 1, 0)
		var runners []*runner.Runner[number]
		for rank := range 2 {
			cfg := only(rows, rank, links)
			cfg.Topology.Transport = func(rank int) transport.Transport[number] { return meddling[number]{links.Rank(rank), change} }
			runners = append(runners, newRunner(t, cfg))
		}
		errs := make(chan error, 2)
		for _, r := range runners {
			go func() { _, err := r.Step(t.Context(), 3, &counted{}); errs <- err }()
		}
		for range 2 {
			require.ErrorContains(t, <-errs, want)
		}
	}
}

// TestPartsThatDoNotFitAreRefused changes the number of parts of a parameter in the report of a replica.
func TestPartsThatDoNotFitAreRefused(t *testing.T) {
	for _, parts := range []float64{-1, 1e300, math.NaN()} {
		r := &replicated{replicas: 2, ranks: 1}
		r.through(t, func(context.Context, int, transport.Tag) error { return nil })
		through := r.change
		r.change = func(cfg *runner.Config[buffer]) {
			through(cfg)
			links := cfg.Topology.Transport
			cfg.Topology.Transport = func(rank int) transport.Transport[buffer] {
				return meddling[buffer]{links(rank).(*windowed).Endpoint, func(all [][]byte) [][]byte {
					all[1] = slices.Clone(all[1])
					binary.LittleEndian.PutUint64(all[1][len(runner.EmptyReport()):], math.Float64bits(parts))
					return all
				}}
			}
		}
		_, err := r.build(t).Step(t.Context(), 2, r.source())
		require.ErrorIs(t, err, transport.ErrRanks)
		require.ErrorContains(t, err, fmt.Sprintf("rank 1 sends %v parts of a parameter", parts))
	}
}

// TestRanksMergeTheirLosses has a loss on the first rank and one on the last: the result has
// both.
func TestRanksMergeTheirLosses(t *testing.T) {
	r := chained(2)
	rows := rowsOf(r.placement)
	r.change = func(cfg *runner.Config[number]) {
		cfg.Losses = append(cfg.Losses, loss.Def{Name: "seen", Reduction: loss.Sum, Metric: true})
		cfg.Stages[0] = seeing{rows[0]}
	}
	result, err := r.group(t, rows).Step(t.Context(), 5, r.sources())
	require.NoError(t, err)
	require.Equal(t, 1.0+2+3+4+5, result.Loss("seen"))
	require.EqualValues(t, 5, result.Losses[0].Weight)
}

// seeing is a stage that records the values that it reads as a loss.
type seeing struct{ *times }

func (s seeing) Spec() stages.Spec {
	spec := s.times.Spec()
	spec.Losses = []string{"seen"}
	return spec
}

func (s seeing) Forward(ctx context.Context, mb view, in, out []number) error {
	x := mb.Part(1)
	mb.Loss(1, *x, 1)
	return s.times.Forward(ctx, mb, in, out)
}

// Ranks with equal peaks of different classes return equal results.
func TestEqualPeaks(t *testing.T) {
	ranks := []runner.RankResult{
		{Peak: 5, PeakClasses: memory.ByClass{memory.Resident: 5}},
		{Peak: 9, PeakClasses: memory.ByClass{memory.Resident: 8, memory.Saved: 1}},
		{Peak: 9, PeakClasses: memory.ByClass{memory.Resident: 9}},
	}
	for _, own := range ranks {
		result := runner.Gather(own, ranks)
		require.EqualValues(t, 9, result.Peak)
		require.Equal(t, ranks[1].PeakClasses, result.PeakClasses)
	}
}
