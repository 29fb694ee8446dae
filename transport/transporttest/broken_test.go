package transporttest_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
	"github.com/weir-ml/weir/transport/transporttest"
)

// cell is a handle that two ranks may share without a data race, so that a broken transport can share it.
type cell = *atomic.Uint64

func newCell(value float64) cell {
	h := new(atomic.Uint64)
	h.Store(math.Float64bits(value))
	return h
}

// cells is a subject over links, whose endpoints a test may wrap.
func cells(change func(*local.Endpoint[cell]) transport.Transport[cell]) transporttest.Subject[cell] {
	return linked(func(_, _ int, h cell) (cell, error) { return newCell(math.Float64frombits(h.Load())), nil }, change)
}

func linked(copies func(from, to int, h cell) (cell, error), change func(*local.Endpoint[cell]) transport.Transport[cell]) transporttest.Subject[cell] {
	return transporttest.Subject[cell]{
		New: func(ranks, capacity int) ([]transport.Transport[cell], func() error, error) {
			links, err := local.New(local.Config[cell]{Ranks: ranks, Capacity: capacity, Copy: copies})
			if err != nil {
				return nil, nil, err
			}
			var ends []transport.Transport[cell]
			for rank := range ranks {
				ends = append(ends, change(links.Rank(rank)))
			}
			return ends, links.Close, nil
		},
		Patience: 50 * time.Millisecond,
		Make:     func(_ int, value float64) (cell, error) { return newCell(value), nil },
		Read:     func(_ int, h cell) (float64, error) { return math.Float64frombits(h.Load()), nil },
		Write:    func(_ int, h cell, value float64) error { h.Store(math.Float64bits(value)); return nil },
		Release:  func(int, cell) error { return nil },
	}
}

// end is an endpoint of links whose calls a test can replace.
type end struct {
	*local.Endpoint[cell]
	send     func(ctx context.Context, to int, tag transport.Tag, h []cell) error
	wait     func(ctx context.Context, to int, tag transport.Tag) error
	recv     func(ctx context.Context, from int, tag transport.Tag, h []cell) error
	exchange func(ctx context.Context, mine []byte) ([][]byte, error)
	begin    func(ctx context.Context, hello []byte) error
	abort    func(cause error)
	get      func(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error
	withdraw func(ctx context.Context, tag transport.Tag, n int64) error
}

func newEnd(e *local.Endpoint[cell]) *end {
	return &end{e, e.Send, e.Wait, e.Recv, e.Exchange, e.Begin, e.Abort, e.Get, e.Withdraw}
}

func (e *end) Send(ctx context.Context, to int, tag transport.Tag, h []cell) error {
	return e.send(ctx, to, tag, h)
}

func (e *end) Wait(ctx context.Context, to int, tag transport.Tag) error {
	return e.wait(ctx, to, tag)
}

func (e *end) Recv(ctx context.Context, from int, tag transport.Tag, h []cell) error {
	return e.recv(ctx, from, tag, h)
}

func (e *end) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	return e.exchange(ctx, mine)
}

func (e *end) Begin(ctx context.Context, hello []byte) error { return e.begin(ctx, hello) }

func (e *end) Abort(cause error) { e.abort(cause) }

func (e *end) Get(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
	return e.get(ctx, from, tag, offset, dst)
}

func (e *end) Withdraw(ctx context.Context, tag transport.Tag, n int64) error {
	return e.withdraw(ctx, tag, n)
}

// brokenTransports lists transports with one defect each, and the part of the contract that the suite must
// name.
var brokenTransports = []struct {
	name, found string
	copies      func(from, to int, h cell) (cell, error)
	change      func(e *end)
}{
	{"it hands over the sender's tensor", "data is copied", func(_, _ int, h cell) (cell, error) { return h, nil }, func(*end) {}},
	{"Wait does not wait", "wait blocks until the receipt", nil, func(e *end) {
		e.wait = func(context.Context, int, transport.Tag) error { return nil }
	}},
	{"tags are ignored", "tags are verified", nil, func(e *end) {
		e.send = func(ctx context.Context, to int, _ transport.Tag, h []cell) error {
			return e.Endpoint.Send(ctx, to, transport.Tag{}, h)
		}
		e.recv = func(ctx context.Context, from int, _ transport.Tag, h []cell) error {
			return e.Endpoint.Recv(ctx, from, transport.Tag{}, h)
		}
		e.wait = func(ctx context.Context, to int, _ transport.Tag) error {
			return e.Endpoint.Wait(ctx, to, transport.Tag{})
		}
	}},
	{"tensors come in another order", "several tensors and none", nil, func(e *end) {
		e.recv = func(ctx context.Context, from int, tag transport.Tag, h []cell) error {
			err := e.Endpoint.Recv(ctx, from, tag, h)
			slices.Reverse(h)
			return err
		}
	}},
	{"ranks are mixed up", "exchange", nil, func(e *end) {
		e.exchange = func(ctx context.Context, mine []byte) ([][]byte, error) {
			all, err := e.Endpoint.Exchange(ctx, mine)
			all = slices.Clone(all)
			slices.Reverse(all)
			return all, err
		}
	}},
	{"Begin does not wait", "begin waits for all", nil, func(e *end) {
		e.begin = func(ctx context.Context, hello []byte) error {
			go func() { _ = e.Endpoint.Begin(ctx, hello) }()
			return nil
		}
	}},
	{"hellos are not compared", "begin compares hellos", nil, func(e *end) {
		e.begin = func(ctx context.Context, _ []byte) error { return e.Endpoint.Begin(ctx, nil) }
	}},
	{"Abort does nothing", "abort ends every call", nil, func(e *end) {
		e.abort = func(error) {}
	}},
	{"contexts are ignored", "a context ends a call", nil, func(e *end) {
		e.recv = func(ctx context.Context, from int, tag transport.Tag, h []cell) error {
			late, end := context.WithTimeout(context.WithoutCancel(ctx), 75*time.Millisecond) // before the suite abandons the call
			defer end()
			return e.Endpoint.Recv(late, from, tag, h)
		}
	}},
	{"a context ends a step that is done", "a step is done on every rank or on none", nil, func(e *end) {
		e.exchange = func(ctx context.Context, mine []byte) ([][]byte, error) {
			all, err := e.Endpoint.Exchange(ctx, mine)
			if ctx.Err() != nil {
				e.Endpoint.Abort(context.Cause(ctx))
			}
			return all, err
		}
	}},
	{"a context ends an exchange that is complete", "a step is done on every rank or on none", nil, func(e *end) {
		e.exchange = func(ctx context.Context, mine []byte) ([][]byte, error) {
			all, err := e.Endpoint.Exchange(ctx, mine)
			if err == nil && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return all, err
		}
	}},
	{"Get ignores the offset", "windows: get blocks until the memory is exposed", nil, func(e *end) {
		e.get = func(ctx context.Context, from int, tag transport.Tag, _ int64, dst []byte) error {
			return e.Endpoint.Get(ctx, from, tag, 0, dst)
		}
	}},
	{"Withdraw does not wait", "windows: withdraw waits for the reads", nil, func(e *end) {
		e.withdraw = func(ctx context.Context, tag transport.Tag, _ int64) error {
			return e.Endpoint.Withdraw(ctx, tag, -1)
		}
	}},
	{"Get past the end is cut short", "windows: tags and ranges are verified", nil, func(e *end) {
		e.get = func(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
			err := e.Endpoint.Get(ctx, from, tag, offset, dst)
			if errors.Is(err, transport.ErrWindow) {
				return nil
			}
			return err
		}
	}},
	{"Get outlives an abort", "windows: abort ends the reads", nil, func(e *end) {
		e.get = func(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
			if err := e.Endpoint.Get(ctx, from, tag, offset, dst); err == nil || errors.Is(err, transport.ErrWindow) || ctx.Err() != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}},
	{"Get finds memory of an earlier step", "windows: begin ends the exposures", nil, func(e *end) {
		var last []byte
		e.get = func(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
			if len(last) > 0 && len(last) <= len(dst) {
				copy(dst, last)
				return nil
			}
			err := e.Endpoint.Get(ctx, from, tag, offset, dst)
			last = dst
			return err
		}
	}},
}

// TestBrokenTransportsAreFound runs in virtual time, in which every call that does not wait returns
// before a pause ends.
func TestBrokenTransportsAreFound(t *testing.T) {
	for _, broken := range brokenTransports {
		t.Run(broken.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				subject := cells(func(e *local.Endpoint[cell]) transport.Transport[cell] {
					x := newEnd(e)
					broken.change(x)
					return x
				})
				if broken.copies != nil {
					subject = linked(broken.copies, func(e *local.Endpoint[cell]) transport.Transport[cell] { return e })
				}
				subject.Capacities = []int{1}
				require.NotEmpty(t, transporttest.CheckOne(subject, broken.found))
			})
		})
	}
}
