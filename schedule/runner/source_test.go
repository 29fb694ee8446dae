package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/schedule/runner"
)

// stream makes the numbers 1, 2, 3, ... and counts them.
type stream struct{ made, ends int }

func (s *stream) next(context.Context) (float64, error) {
	if s.ends > 0 && s.made == s.ends {
		return 0, io.EOF
	}
	s.made++
	return float64(s.made), nil
}

// putNumber puts an item into an entry.
func putNumber(item float64, entry batchctx.Entry[number]) error {
	entry.Put("x", num(item))
	return nil
}

func TestRanksShareAStream(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			r := chained(3)
			rows := rowsOf(r.placement)
			g := r.group(t, rows)
			s := &stream{}
			result := runStep(t, g, 6, runner.Stream(s.next, putNumber))
			require.Equal(t, 6, s.made, "each item once")
			require.Equal(t, alone(t, 3, 6), numbersOf(t, result, rows))
		})
	}
}

func TestASharedStreamEndsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chained(3)
		g := r.group(t, rowsOf(r.placement))
		s := &stream{ends: 4}
		source := runner.Stream(s.next, putNumber)
		_, err := g.Step(t.Context(), 6, source)
		require.ErrorIs(t, err, runner.ErrShortBatch)
		require.ErrorContains(t, err, "4 of 6 microbatches")
		s.ends = 0
		runStep(t, g, 6, source)
		require.Equal(t, 10, s.made, "the stream continues at its next item")
		r.released(t)
	})
}

// TestSharedSourcesGoTheirOwnPace pulls on one rank after the other, and checks which items are
// kept.
func TestSharedSourcesGoTheirOwnPace(t *testing.T) {
	type item struct {
		n int
		_ [64]int // too large for the tiny allocator (16 bytes), so no other object keeps it alive
	}
	var made []weak.Pointer[item]
	var got []string
	at := 0
	sources := runner.SourcesOf(t, 3, runner.Stream(
		func(context.Context) (*item, error) {
			if len(made) == 40 {
				return nil, errors.New("enough")
			}
			i := &item{n: len(made)}
			made = append(made, weak.Make(i))
			return i, nil
		},
		func(i *item, _ batchctx.Entry[number]) error {
			got = append(got, fmt.Sprintf("%d:%d", at, i.n))
			return nil
		}))
	next := func(rank int) error { at = rank; return sources[rank].Next(t.Context(), batchctx.Entry[number]{}) }
	held := func() int {
		runtime.GC()
		n := 0
		for _, p := range made {
			if p.Value() != nil {
				n++
			}
		}
		return n
	}
	for range 20 {
		require.NoError(t, next(0))
	}
	require.Equal(t, 20, held())
	for range 5 {
		require.NoError(t, next(1))
		require.NoError(t, next(2))
	}
	require.Equal(t, 15, held(), "items that every rank has received are not kept")
	for range 30 {
		require.NoError(t, next(1))
		require.NoError(t, next(2))
	}
	require.Len(t, made, 35)
	require.Equal(t, 15, held())
	require.Equal(t, []string{"0:19", "1:0", "2:0", "1:1"}, got[19:23])
	for range 5 {
		require.NoError(t, next(2))
	}
	for rank, left := range []int{20, 5, 0} {
		for range left {
			require.NoError(t, next(rank))
		}
		require.ErrorContains(t, next(rank), "enough")
	}
	require.Zero(t, held())
}

// TestASharedStreamIsAskedByOneRankAtATime uses a slow stream: another rank waits for the same
// item, and does not make it again.
func TestASharedStreamIsAskedByOneRankAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &stream{}
		sources := runner.SourcesOf(t, 2, runner.Stream(
			func(ctx context.Context) (float64, error) { <-release; return s.next(ctx) },
			func(float64, batchctx.Entry[number]) error { return nil }))
		ctx, cancel := context.WithCancelCause(t.Context())
		var ranks sync.WaitGroup
		ranks.Go(func() { require.NoError(t, sources[0].Next(t.Context(), batchctx.Entry[number]{})) })
		synctest.Wait()
		cause := errors.New("planted")
		ranks.Go(func() { require.ErrorIs(t, sources[1].Next(ctx, batchctx.Entry[number]{}), cause) })
		synctest.Wait()
		cancel(cause)
		synctest.Wait()
		close(release)
		ranks.Wait()
		require.NoError(t, sources[1].Next(t.Context(), batchctx.Entry[number]{}))
		require.Equal(t, 1, s.made)
	})
}

// A runner keeps no reference to a source after planning.
func TestPrepareKeepsNoSource(t *testing.T) {
	r := chained(3)
	g := r.group(t, rowsOf(r.placement))
	reached := func() weak.Pointer[[64]int] {
		data := new([64]int)
		_, err := g.Prepare(t.Context(), 4, runner.Indexed(func(_ context.Context, entry batchctx.Entry[number]) error {
			return putNumber(float64(data[0]), entry)
		}))
		require.NoError(t, err)
		return weak.Make(data)
	}()
	runtime.GC()
	require.Nil(t, reached.Value())
	runtime.KeepAlive(g)
}

// Items of a stream that a failed step has not used are gone when the next step begins.
func TestAFailedStepLeavesNoItems(t *testing.T) {
	r := chained(3)
	g := r.group(t, rowsOf(r.placement))
	type item [8]float64 // too large for the tiny allocator (16 bytes), so no other object keeps it alive
	var made []weak.Pointer[item]
	fails, ahead := errors.New("no more"), make(chan struct{})
	failing, first := true, 0 // entries of the first rank
	source := runner.Stream(func(context.Context) (*item, error) {
		one := &item{float64(len(made) + 1)}
		made = append(made, weak.Make(one))
		return one, nil
	}, func(one *item, entry batchctx.Entry[number]) error {
		switch {
		case !failing:
		case entry.Rank() == 0:
			if first++; first == 2 {
				close(ahead)
			}
		case entry.Rank() == 2:
			<-ahead
			return fails
		}
		return putNumber(one[0], entry)
	})
	_, err := g.Step(t.Context(), 6, source)
	require.ErrorIs(t, err, fails)
	left := len(made)
	require.GreaterOrEqual(t, left, 2)
	failing = false
	runStep(t, g, 1, source)
	runtime.GC()
	for i, one := range made[:left] {
		require.Nil(t, one.Value(), "item %d", i)
	}
	runtime.KeepAlive(source)
}
