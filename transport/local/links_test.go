package local_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
	"github.com/weir-ml/weir/transport/transporttest"
)

type number = *float64

func num(v float64) number { return &v }

// copyNumber copies numbers between ranks.
func copyNumber(_, _ int, h number) (number, error) { return num(*h), nil }

func newLinks(t testing.TB, ranks, capacity int, stall time.Duration) *local.Links[number] {
	t.Helper()
	links, err := local.New(local.Config[number]{Ranks: ranks, Capacity: capacity, Copy: copyNumber, Stall: stall})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, links.Close()) })
	return links
}

// subject returns a subject whose tensors are numbers. change may wrap the endpoints of the links.
func subject(change func(*local.Endpoint[number]) transport.Transport[number]) transporttest.Subject[number] {
	return transporttest.Subject[number]{
		New: func(ranks, capacity int) ([]transport.Transport[number], func() error, error) {
			cfg := local.Config[number]{Ranks: ranks, Capacity: capacity, Copy: copyNumber}
			if ranks%2 == 0 {
				cfg.Sum = func(_ int, h number) (uint32, error) { return math.Float32bits(float32(*h)), nil }
			}
			links, err := local.New(cfg)
			if err != nil {
				return nil, nil, err
			}
			var ends []transport.Transport[number]
			for rank := range ranks {
				ends = append(ends, change(links.Rank(rank)))
			}
			return ends, links.Close, nil
		},
		Make:    func(_ int, value float64) (number, error) { return num(value), nil },
		Read:    func(_ int, h number) (float64, error) { return *h, nil },
		Write:   func(_ int, h number, value float64) error { *h = value; return nil },
		Release: func(int, number) error { return nil },
	}
}

func TestLinksConform(t *testing.T) {
	transporttest.Run(t, subject(func(e *local.Endpoint[number]) transport.Transport[number] { return e }))
}

func TestLinksRefuse(t *testing.T) {
	_, err := local.New(local.Config[number]{Ranks: 0, Capacity: -2})
	require.ErrorContains(t, err, "links of 0 ranks")
	require.ErrorContains(t, err, "capacity -2")
	links, err := local.New(local.Config[number]{Ranks: 1})
	require.NoError(t, err)
	end := links.Rank(0)
	require.NoError(t, end.Begin(t.Context(), nil))
	for _, rank := range []int{-1, 0, 1} {
		require.ErrorContains(t, end.Send(t.Context(), rank, transport.Tag{}, nil), "no link from rank 0 to rank")
		require.ErrorContains(t, end.Recv(t.Context(), rank, transport.Tag{}, nil), "to rank 0 of 1")
		require.ErrorContains(t, end.Wait(t.Context(), rank, transport.Tag{}), "no link")
	}
	require.NoError(t, links.Close())
	require.ErrorIs(t, end.Begin(t.Context(), nil), transport.ErrClosed)
	_, err = end.Exchange(t.Context(), nil)
	require.ErrorIs(t, err, transport.ErrClosed)
}

// TestSums requires an error for a copy that differs from its original.
func TestSums(t *testing.T) {
	sum := func(_ int, h number) (uint32, error) { return math.Float32bits(float32(*h)), nil }
	for _, change := range []float64{0, 1} {
		links, err := local.New(local.Config[number]{Ranks: 2, Capacity: 1, Sum: sum, Copy: func(_, _ int, h number) (number, error) { return num(*h + change), nil }})
		require.NoError(t, err)
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() {
				end, h := links.Rank(rank), []number{num(2)}
				assert.NoError(t, end.Begin(t.Context(), nil))
				if rank == 0 {
					assert.NoError(t, end.Send(t.Context(), 1, transport.Tag{}, h))
					return
				}
				err := end.Recv(t.Context(), 0, transport.Tag{}, h)
				assert.Equal(t, change != 0, errors.Is(err, transport.ErrSum), "%v", err)
			})
		}
		ranks.Wait()
		require.NoError(t, links.Close())
	}
}

// TestACopyThatFailsEndsTheReceive fails on the second of three tensors: the receiver owns the
// first one, and the message is not received.
func TestACopyThatFailsEndsTheReceive(t *testing.T) {
	cause := errors.New("planted")
	links, err := local.New(local.Config[number]{Ranks: 2, Capacity: 1, Copy: func(_, _ int, h number) (number, error) {
		if *h == 2 {
			return nil, cause
		}
		return num(*h), nil
	}})
	require.NoError(t, err)
	both := func(f func(end *local.Endpoint[number], rank int)) {
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() { f(links.Rank(rank), rank) })
		}
		ranks.Wait()
	}
	both(func(end *local.Endpoint[number], rank int) {
		require.NoError(t, end.Begin(t.Context(), nil))
		if rank == 0 {
			require.NoError(t, end.Send(t.Context(), 1, transport.Tag{}, []number{num(1), num(2), num(3)}))
			require.ErrorIs(t, end.Wait(t.Context(), 1, transport.Tag{}), cause)
			return
		}
		h := make([]number, 3)
		err := end.Recv(t.Context(), 0, transport.Tag{}, h)
		require.ErrorIs(t, err, cause)
		require.Equal(t, 1.0, *h[0])
		require.Nil(t, h[2])
		end.Abort(err)
	})
	// A message that rank 0 has left on the link, without an Abort of its own, is gone in the
	// next step.
	both(func(end *local.Endpoint[number], rank int) {
		require.NoError(t, end.Begin(t.Context(), nil))
		tag := transport.Tag{Microbatch: 9}
		if rank == 0 {
			require.NoError(t, end.Send(t.Context(), 1, tag, nil))
			require.NoError(t, end.Wait(t.Context(), 1, tag))
			return
		}
		require.NoError(t, end.Recv(t.Context(), 0, tag, nil))
	})
	require.NoError(t, links.Close())
}

// TestAbortWaitsForReaders aborts while the other rank copies a message: Abort returns when the
// copy has ended, with or without an error (L4).
func TestAbortWaitsForReaders(t *testing.T) {
	for name, end := range map[string]func() error{
		"copied":   func() error { return nil },
		"failed":   func() error { return errors.New("planted") },
		"panicked": func() error { panic("planted") },
	} {
		synctest.Test(t, func(t *testing.T) {
			copying, over := make(chan struct{}), make(chan struct{})
			links, err := local.New(local.Config[number]{Ranks: 2, Capacity: 1, Copy: func(_, _ int, h number) (number, error) {
				close(copying)
				<-over
				return num(*h), end()
			}})
			require.NoError(t, err)
			aborted := false
			var ranks sync.WaitGroup
			ranks.Go(func() {
				assert.NoError(t, links.Rank(0).Begin(t.Context(), nil))
				assert.NoError(t, links.Rank(0).Send(t.Context(), 1, transport.Tag{}, []number{num(1)}))
				<-copying
				links.Rank(0).Abort(errors.New("enough"))
				aborted = true
			})
			ranks.Go(func() {
				defer func() { _ = recover() }()
				assert.NoError(t, links.Rank(1).Begin(t.Context(), nil))
				_ = links.Rank(1).Recv(t.Context(), 0, transport.Tag{}, make([]number, 1))
			})
			synctest.Wait()
			assert.False(t, aborted, name)
			close(over)
			ranks.Wait()
			require.True(t, aborted, name)
			require.NoError(t, links.Close())
		})
	}
}

// TestAnExchangeIsForAllOrNone lets a rank leave an Exchange because its context ends. A rank that enters later
// still waits for it.
func TestAnExchangeIsForAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("planted")
		links := newLinks(t, 2, 1, time.Minute)
		var ranks sync.WaitGroup
		ranks.Go(func() {
			assert.NoError(t, links.Rank(0).Begin(t.Context(), nil))
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			_, err := links.Rank(0).Exchange(ctx, []byte{1})
			assert.ErrorIs(t, err, cause)
		})
		ranks.Go(func() {
			assert.NoError(t, links.Rank(1).Begin(t.Context(), nil))
			time.Sleep(time.Second) // until the other rank has left
			all, err := links.Rank(1).Exchange(t.Context(), []byte{2})
			assert.Nil(t, all)
			assert.ErrorContains(t, err, "rank 1, step 0, is outside of its program, has waited 59s for rank 0")
		})
		ranks.Wait()
	})
}

// TestWhoLeftAnExchangeMayComeAgain requires that a rank that leaves and returns while the others wait is not
// counted twice.
func TestWhoLeftAnExchangeMayComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := newLinks(t, 3, 1, time.Minute)
		var ranks sync.WaitGroup
		for rank := range 3 {
			ranks.Go(func() {
				end := links.Rank(rank)
				assert.NoError(t, end.Begin(t.Context(), nil))
				time.Sleep(time.Duration(rank) * time.Second)
				if rank == 1 { // rank 0 waits
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					_, err := end.Exchange(ctx, nil)
					assert.ErrorIs(t, err, context.Canceled)
				}
				all, err := end.Exchange(t.Context(), []byte{byte(rank)})
				assert.NoError(t, err)
				assert.Equal(t, [][]byte{{0}, {1}, {2}}, all)
			})
		}
		ranks.Wait()
	})
}

// TestStallInAWindow lets a read and a withdrawal wait, while the ranks wait for nothing else.
func TestStallInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := newLinks(t, 2, 1, time.Minute)
		errs := make([]error, 2)
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() {
				end := links.Rank(rank)
				assert.NoError(t, end.Begin(t.Context(), nil))
				end.Runs(9, schedule.NewAction(schedule.F, rank, 5))
				grads := transport.Tag{Stage: 1, Content: transport.Grads}
				if rank == 0 {
					errs[rank] = end.Get(t.Context(), 1, grads, 0, make([]byte, 1))
				} else {
					grads.Content = transport.Sums
					assert.NoError(t, end.Expose(grads, make([]byte, 1)))
					errs[rank] = end.Withdraw(t.Context(), grads, 1)
				}
				end.Abort(errs[rank])
			})
		}
		ranks.Wait()
		for _, err := range errs {
			var stall *transport.StallError
			require.ErrorAs(t, err, &stall)
			require.ErrorContains(t, err, "rank 0, step 9, runs 0F5, has waited 1m")
			require.ErrorContains(t, err, "for 1REDUCE_GRAD of rank 1; rank 1, step 9, runs 1F5, has waited 1m")
			require.ErrorContains(t, err, "for all ranks")
		}
	})
}
