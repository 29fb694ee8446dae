package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
)

type entry = batchctx.Entry[tensor]

// mistakes are faults of a source with the entry of a microbatch, each with the expected error.
var mistakes = []struct {
	name string
	want error
	next func(r *rig, e entry) error
}{
	{"ends early", runner.ErrShortBatch, func(*rig, entry) error { return io.EOF }},
	{"ends early, wrapped", runner.ErrShortBatch, func(*rig, entry) error { return fmt.Errorf("the file: %w", io.EOF) }},
	{"ends early after a part", runner.ErrShortBatch, func(r *rig, e entry) error {
		return errors.Join(r.put(e, 0), io.EOF)
	}},
	{"fails", errPlanted, func(*rig, entry) error { return errPlanted }},
	{"fails after the last part", errPlanted, func(r *rig, e entry) error { return errors.Join(r.fill(e), errPlanted) }},
	{"fails while it owns a buffer", errPlanted, func(r *rig, _ entry) error {
		_, _, err := r.pool.alloc(memory.Entry, 5)
		return errors.Join(err, errPlanted)
	}},
	{"puts nothing", batchctx.ErrMissing, func(*rig, entry) error { return nil }},
	{"omits the last part", batchctx.ErrMissing, func(r *rig, e entry) error { return errors.Join(r.put(e, 0), r.put(e, 1)) }},
	{"puts a part twice", batchctx.ErrOccupied, func(r *rig, e entry) error { return errors.Join(r.fill(e), r.put(e, 1)) }},
	{"puts a part that is not read", batchctx.ErrUnread, func(r *rig, e entry) error {
		h, _, err := r.pool.alloc(memory.Entry, 5)
		e.Put("mark", h)
		return err
	}},
	{"puts a part that is not read, and recovers", batchctx.ErrUnread, func(r *rig, e entry) error {
		h, _, err := r.pool.alloc(memory.Entry, 5)
		defer func() { _ = recover() }()
		e.Put("mark", h)
		return err
	}},
	{"puts the zero handle", memory.ErrNone, func(_ *rig, e entry) error { e.Put(parts[0], tensor{}); return nil }},
	{"puts a stale handle", memory.ErrStale, func(r *rig, e entry) error {
		h, _, err := r.pool.alloc(memory.Entry, 5)
		if err == nil {
			_, err = r.pool.Release(h)
		}
		return errors.Join(err, give(e, 0, h))
	}},
	{"puts a handle of another arena", memory.ErrOtherArena, func(r *rig, e entry) error {
		h, _, err := r.pool.alloc(memory.Entry, 5)
		other := newPool(r.t, &r.events, 1<<16)
		return errors.Join(err, give(e, 0, twin(r.t, other, h)))
	}},
	{"puts one buffer as two parts", memory.ErrNoPlain, func(r *rig, e entry) error {
		h, _, err := r.pool.alloc(memory.Entry, 5)
		return errors.Join(err, give(e, 0, h), give(e, 1, h))
	}},
	{"keeps a reference", batchctx.ErrLeak, func(r *rig, e entry) error {
		h, _, err := r.pool.alloc(memory.Entry, 2+3*(e.Index()%3))
		return errors.Join(err, r.pool.Retain(h), give(e, 0, h), r.put(e, 1), r.put(e, 2))
	}},
	{"allocates and does not put", batchctx.ErrLeak, func(r *rig, e entry) error {
		_, _, err := r.pool.alloc(memory.Entry, 5)
		return errors.Join(err, r.fill(e))
	}},
}

// put allocates one part of an entry and puts it.
func (r *rig) put(e entry, part int) error {
	h, _, err := r.pool.alloc(memory.Entry, 2+3*(e.Index()%3))
	if err != nil {
		return err
	}
	return give(e, part, h)
}

// give puts a part. If the part is wrong, the call does not return.
func give(e entry, part int, h tensor) error {
	e.Put(parts[part], h)
	return nil
}

// TestSourceMistakes makes the source fail, end early, or put the wrong part at each
// microbatch, with and without look-ahead, in training and in evaluation.
func TestSourceMistakes(t *testing.T) {
	const m = 4
	for _, lookAhead := range []int{0, 1, m} {
		for _, mode := range []schedule.Mode{schedule.Training, schedule.ForwardOnly} {
			for _, order := range []schedule.Rule{schedule.DepthFirst, schedule.BreadthFirst} {
				d := design{build: whole, rule: order, lookAhead: lookAhead, capacity: 1 << 20}
				broken, intact := newRig(t, d), newRig(t, d)
				require.Equal(t, intact.clean(mode, m), broken.clean(mode, m))
				for _, mistake := range mistakes {
					for at := range m {
						name := fmt.Sprintf("%s at microbatch %d, look-ahead %d, mode %d", mistake.name, at, lookAhead, mode)
						before := broken.pool.book()
						broken.events.plan(-1, returns, nil)
						calls := 0
						result, err := broken.run(context.Background(), mode, m, func(_ context.Context, e entry) error {
							require.Equal(t, calls, e.Index(), name)
							calls++
							if e.Index() == at {
								return mistake.next(broken, e)
							}
							return broken.fill(e)
						})
						require.Nil(t, result, name)
						require.ErrorIs(t, err, mistake.want, name)
						var typed *transport.StepError
						require.ErrorAs(t, err, &typed, name)
						if mistake.want != batchctx.ErrLeak {
							require.Equal(t, at+1, calls, "%s: the source is not called after a failure", name)
							require.Equal(t, broken.events.action, typed.Action, name)
							require.Equal(t, schedule.NewAction(schedule.F, 0, max(at-lookAhead, 0)), typed.Action.WithDrop(0), name)
						}
						requireReleased(t, before, broken.pool.book())
						require.Equal(t, intact.clean(mode, m), broken.clean(mode, m), "after: %s", name)
					}
				}
			}
		}
	}
}

// TestForeignBuffer puts a buffer that was allocated before the step. The books differ, because the
// step's book does not count the buffer; it is released, because the entry owns it.
func TestForeignBuffer(t *testing.T) {
	d := design{build: whole, rule: schedule.DepthFirst, capacity: 1 << 20}
	broken, intact := newRig(t, d), newRig(t, d)
	before := broken.pool.book()
	h, _, err := broken.pool.alloc(memory.Entry, 2)
	require.NoError(t, err)
	_, err = broken.run(context.Background(), schedule.Training, 2, func(_ context.Context, e entry) error {
		if e.Index() > 0 {
			return broken.fill(e)
		}
		return errors.Join(give(e, 0, h), broken.put(e, 1), broken.put(e, 2))
	})
	require.ErrorIs(t, err, batchctx.ErrLeak)
	requireReleased(t, before, broken.pool.book())
	require.Equal(t, intact.clean(schedule.Training, 2), broken.clean(schedule.Training, 2))
}

// TestSlowSource cancels a step while its source waits, by a deadline and by a call: Step returns
// with the source, and leaves no goroutine.
func TestSlowSource(t *testing.T) {
	for name, lookAhead := range map[string]int{"no look-ahead": 0, "look-ahead": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, design{build: whole, rule: schedule.DepthFirst, lookAhead: lookAhead, capacity: 1 << 20})
				before := r.pool.book()
				slow := func(ctx context.Context, e entry) error {
					select {
					case <-time.After(time.Second):
						return r.fill(e)
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
				defer cancel()
				_, err := r.run(ctx, schedule.Training, 8, slow)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var typed *transport.StepError
				require.ErrorAs(t, err, &typed)
				require.Equal(t, schedule.NewAction(schedule.F, 0, 2-lookAhead), typed.Action.WithDrop(0), "Step waited for the third entry")
				require.Equal(t, 2500*time.Millisecond, time.Since(start))
				requireReleased(t, before, r.pool.book())

				byCall, stop := context.WithCancelCause(context.Background())
				go func() {
					time.Sleep(1500 * time.Millisecond)
					stop(errCancelled)
				}()
				start = time.Now()
				_, err = r.run(byCall, schedule.ForwardOnly, 8, slow)
				require.ErrorIs(t, err, errCancelled)
				require.Equal(t, 1500*time.Millisecond, time.Since(start))
				requireReleased(t, before, r.pool.book())

				start = time.Now()
				_, err = r.run(context.Background(), schedule.Training, 8, slow)
				require.NoError(t, err)
				require.Equal(t, 8*time.Second, time.Since(start))
				requireReleased(t, before, r.pool.book())
			})
		})
	}
}

// TestEntryEndsWithNext keeps the view of an entry. After Next the view refuses every call, so the
// source still owns a handle that it puts too late.
func TestEntryEndsWithNext(t *testing.T) {
	for name, last := range map[string]error{"a whole step": nil, "a failed step": errPlanted} {
		t.Run(name, func(t *testing.T) {
			d := design{build: whole, rule: schedule.DepthFirst, capacity: 1 << 20}
			r, intact := newRig(t, d), newRig(t, d)
			before := r.pool.book()
			var kept entry
			result, err := r.run(context.Background(), schedule.Training, 2, func(_ context.Context, e entry) error {
				kept = e
				if e.Index() == 1 && last != nil {
					return last
				}
				return r.fill(e)
			})
			require.ErrorIs(t, err, last)
			for _, late := range []func(){func() { _ = r.put(kept, 0) }, func() { kept.Wants(parts[0]) }, func() { kept.Index() }} {
				func() {
					defer func() { require.ErrorIs(t, recover().(error), batchctx.ErrEnded) }()
					late()
				}()
			}
			requireReleased(t, before, r.pool.book())
			if last == nil {
				require.Equal(t, intact.clean(schedule.Training, 2), r.readAndUpdate(schedule.Training, result))
			}
			require.Equal(t, intact.clean(schedule.Training, 2), r.clean(schedule.Training, 2))
			requireReleased(t, before, r.pool.book())
		})
	}
}
