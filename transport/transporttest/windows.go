package transporttest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-ml/weir/transport"
)

// windowTests returns the tests of transport.Windows. They pass if the transport does not
// implement it.
func windowTests[T any]() []test[T] {
	return []test[T]{
		{"windows: get blocks until the memory is exposed", windows((*suite[T]).gets)},
		{"windows: withdraw waits for the reads", windows((*suite[T]).withdraws)},
		{"windows: tags and ranges are verified", windows((*suite[T]).outOfRange)},
		{"windows: abort ends the reads", windows((*suite[T]).abortsReads)},
		{"windows: begin ends the exposures", windows((*suite[T]).beginsAnew)},
		{"windows: a context ends a call", windows((*suite[T]).cancelsReads)},
		{"windows: a rank is lost", windows((*suite[T]).losesReads)},
	}
}

// windows returns a test of transport.Windows that runs only at the first capacity, because the
// capacity of links does not matter to it.
func windows[T any](run func(s *suite[T])) func(s *suite[T]) {
	return func(s *suite[T]) {
		if capacities := s.Capacities; len(capacities) > 0 && s.capacity != capacities[0] || capacities == nil && s.capacity != 0 || !s.link(1) {
			return
		}
		if _, ok := s.ends[0].(transport.Windows); ok {
			run(s)
		}
	}
}

func (r *rank[T]) windows() transport.Windows { return r.endpoint.(transport.Windows) }

// weights returns the tag of a parameter's weights.
func weights(param int) transport.Tag {
	return transport.Tag{Step: 7, Content: transport.Weights, Stage: 3, Param: param}
}

// pattern returns n bytes that differ between seeds and positions.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*31 + seed)
	}
	return b
}

// get reads n bytes, which must be equal to the pattern.
func (r *rank[T]) get(from int, tag transport.Tag, offset, n, seed int) bool {
	dst := make([]byte, n)
	if !r.succeeds(r.windows().Get(r.ctx, from, tag, int64(offset), dst), "Get of "+tag.String()) {
		return false
	}
	if !slices.Equal(dst, pattern(offset+n, seed)[offset:]) {
		r.errorf("Get of %d bytes at offset %d returns other bytes", n, offset)
	}
	return true
}

// gets reads memory of several sizes on several goroutines at the same time. The reads begin before the memory
// is exposed.
func (s *suite[T]) gets() {
	sizes := []int{0, 1, 4096, 1<<18 + 5}
	var exposed flag
	s.ranks(3, func(r *rank[T]) {
		if r.number == 0 {
			exposed.unsetAfterPause()
			exposed.Store(true)
		}
		var all sync.WaitGroup
		for i, size := range sizes {
			for from := range 3 {
				if from == r.number {
					all.Go(func() { // on its own goroutine, as reductions do
						r.succeeds(r.windows().Expose(weights(i), pattern(size, 3*i+from)), "Expose")
					})
					continue
				}
				all.Go(func() {
					if r.get(from, weights(i), 0, size, 3*i+from) && from == 0 && !exposed.Load() {
						r.errorf("Get returns before the memory is exposed")
					}
				})
				all.Go(func() { r.get(from, weights(i), size/3, size/2, 3*i+from) })
			}
		}
		all.Wait()
		if _, err := r.endpoint.Exchange(r.ctx, nil); !r.succeeds(err, "Exchange") {
			return
		}
		var want int64
		for _, size := range sizes {
			want += 2 * int64(size+size/2)
		}
		if served := r.windows().Served(); served != want {
			r.errorf("Served is %d after ranks have read %d bytes", served, want)
		}
	})
}

func (s *suite[T]) withdraws() {
	const size = 1 << 16
	var last flag
	s.ranks(3, func(r *rank[T]) {
		tag := transport.Tag{Step: 7, Content: transport.Grads, Stage: 1}
		if r.number > 0 {
			r.get(0, tag, 0, size/2, 5)
			if r.number == 2 {
				last.unsetAfterPause()
				last.Store(true)
			}
			r.get(0, tag, size/2, size/2, 5)
			_, err := r.endpoint.Exchange(r.ctx, nil)
			r.succeeds(err, "Exchange")
			r.wraps(r.windows().Get(r.ctx, 0, tag, 0, make([]byte, 1)), transport.ErrWindow, "Get after Withdraw")
			return
		}
		b := pattern(size, 5)
		r.succeeds(r.windows().Expose(tag, b), "Expose")
		r.succeeds(r.windows().Withdraw(r.ctx, tag, 2*size), "Withdraw")
		if !last.Load() {
			r.errorf("Withdraw returns before all bytes were read")
		}
		clear(b) // the race detector reports a rank that still reads b
		r.wraps(r.windows().Withdraw(r.ctx, tag, 0), transport.ErrWindow, "a second Withdraw")
		r.wraps(r.windows().Expose(tag, b), transport.ErrWindow, "Expose after Withdraw")
		unread := tag
		unread.Content = transport.Sums
		r.succeeds(r.windows().Expose(unread, b), "Expose")
		r.succeeds(r.windows().Withdraw(r.ctx, unread, -1), "Withdraw of unread memory")
		_, err := r.endpoint.Exchange(r.ctx, nil)
		r.succeeds(err, "Exchange")
	})
}

func (s *suite[T]) outOfRange() {
	s.ranks(2, func(r *rank[T]) {
		w := r.windows()
		if r.number == 0 {
			r.succeeds(w.Expose(weights(0), pattern(100, 1)), "Expose")
			r.wraps(w.Expose(weights(0), pattern(100, 1)), transport.ErrWindow, "a second Expose")
			r.wraps(w.Expose(output(0), pattern(100, 1)), transport.ErrWindow, "Expose of an output")
			r.wraps(w.Withdraw(r.ctx, weights(9), 0), transport.ErrWindow, "Withdraw of memory that is not exposed")
		} else {
			for _, bad := range [][2]int{{0, 101}, {100, 1}, {-1, 1}, {1, 100}} {
				r.wraps(w.Get(r.ctx, 0, weights(0), int64(bad[0]), make([]byte, bad[1])), transport.ErrWindow, "Get out of range")
			}
			r.wraps(w.Get(r.ctx, 0, weights(0), 1<<62, make([]byte, 1)), transport.ErrWindow, "Get far out of range")
			r.wraps(w.Get(r.ctx, 0, gradient(0), 0, nil), transport.ErrWindow, "Get of a gradient")
			for _, from := range []int{-1, 1, 2} {
				if err := w.Get(r.ctx, from, weights(0), 0, make([]byte, 1)); err == nil {
					r.errorf("Get from rank %d succeeds", from)
				}
			}
			r.get(0, weights(0), 100, 0, 1)
			r.get(0, weights(0), 0, 100, 1) // no rank has ended the step
		}
		_, err := r.endpoint.Exchange(r.ctx, nil)
		r.succeeds(err, "Exchange")
	})
}

// abortsReads aborts a step while one rank reads the memory of another. The owner, the reader and a third rank
// abort it in turn.
func (s *suite[T]) abortsReads() {
	cause := errors.New("planted cause")
	const size = 1 << 18
	for aborter := range 3 {
		var reads flag
		s.ranks(3, func(r *rank[T]) {
			w, b := r.windows(), pattern(size, 1)
			var all sync.WaitGroup
			switch {
			case r.number == 0:
				r.succeeds(w.Expose(weights(0), b), "Expose")
				if aborter != 0 {
					all.Go(func() { r.wraps(w.Withdraw(r.ctx, weights(0), 1<<60), cause, "Withdraw") })
				}
			case r.number == 1:
				for range 3 {
					all.Go(func() {
						dst := make([]byte, size)
						err := w.Get(r.ctx, 0, weights(0), 0, dst)
						for reads.Store(true); err == nil; {
							err = w.Get(r.ctx, 0, weights(0), 0, dst)
						}
						r.wraps(err, cause, "Get under way")
					})
				}
				all.Go(func() {
					r.wraps(w.Get(r.ctx, 0, weights(1), 0, make([]byte, 1)), cause, "Get of memory that is never exposed")
				})
			case aborter != 2:
				_, err := r.endpoint.Exchange(r.ctx, nil)
				r.wraps(err, cause, "Exchange")
			}
			if r.number == aborter {
				for !reads.Load() && r.ctx.Err() == nil {
					runtime.Gosched()
				}
				r.endpoint.Abort(cause)
			}
			if r.number == 0 {
				all.Wait() // until the aborter has ended the step
				r.endpoint.Abort(cause)
				clear(b) // the race detector reports a rank that still reads b
				r.wraps(w.Expose(weights(2), b), cause, "a later Expose")
				r.wraps(w.Withdraw(r.ctx, weights(0), 0), cause, "a later Withdraw")
			}
			all.Wait()
			r.endpoint.Abort(cause)
			if r.number == 1 {
				r.wraps(w.Get(r.ctx, 0, weights(0), 0, make([]byte, 1)), cause, "a later Get")
			}
		})
		s.step(func(r *rank[T]) { // the next step works
			if r.number == 0 {
				r.succeeds(r.windows().Expose(weights(0), pattern(size, 2)), "Expose in the step after an abort")
			} else {
				r.get(0, weights(0), 0, size, 2)
			}
			_, err := r.endpoint.Exchange(r.ctx, nil)
			r.succeeds(err, "Exchange in the step after an abort")
		})
	}
}

// beginsAnew exposes different memory under the same tag in each step.
func (s *suite[T]) beginsAnew() {
	if !s.link(2) {
		return
	}
	for step := range 4 {
		var exposed flag
		s.step(func(r *rank[T]) {
			if r.number == 0 {
				exposed.unsetAfterPause()
				exposed.Store(true)
				r.succeeds(r.windows().Expose(weights(0), pattern(1000+step, step)), "Expose")
				return
			}
			if r.get(0, weights(0), 0, 1000+step, step) && !exposed.Load() {
				r.errorf("Get returns memory of an earlier step")
			}
		})
	}
}

func (s *suite[T]) cancelsReads() {
	reason := errors.New("planted reason")
	s.ranks(2, func(r *rank[T]) {
		ctx, cancel := context.WithCancelCause(r.ctx)
		var all sync.WaitGroup
		if r.number == 0 {
			r.succeeds(r.windows().Expose(weights(0), pattern(10, 1)), "Expose")
			all.Go(func() {
				r.wraps(r.windows().Withdraw(ctx, weights(0), 1<<40), reason, "Withdraw under a cancelled context")
			})
		} else {
			all.Go(func() {
				r.wraps(r.windows().Get(ctx, 0, weights(1), 0, make([]byte, 1)), reason, "Get under a cancelled context")
			})
		}
		var blocked flag
		blocked.unsetAfterPause()
		cancel(reason)
		all.Wait()
		if r.number == 1 {
			r.get(0, weights(0), 0, 10, 1) // the step continues
		}
		_, err := r.endpoint.Exchange(r.ctx, nil)
		r.succeeds(err, "Exchange")
	})
}

// losesReads kills a rank that exposes memory while others read it or wait for it. It also kills a reader while
// the owner waits for its reads.
func (s *suite[T]) losesReads() {
	if s.Kill == nil {
		return
	}
	for lost := range 3 {
		var begun sync.WaitGroup
		begun.Add(3)
		s.ranks(3, func(r *rank[T]) {
			var all sync.WaitGroup
			w := r.windows()
			fails := func(err error, call string) {
				if err == nil || r.ctx.Err() != nil {
					r.errorf("%s returns %v after rank %d was lost: %v", call, err, lost, r.ctx.Err())
				}
			}
			if r.number == 0 {
				r.succeeds(w.Expose(weights(0), pattern(1<<18, 1)), "Expose")
			}
			begun.Done()
			begun.Wait()
			if r.number == lost {
				s.Kill(r.endpoint)
				return
			}
			switch r.number {
			case 0:
				all.Go(func() { fails(w.Withdraw(r.ctx, weights(0), 1<<60), "Withdraw") })
			default:
				all.Go(func() {
					var err error
					for dst := make([]byte, 1<<18); err == nil; {
						err = w.Get(r.ctx, 0, weights(0), 0, dst)
					}
					fails(err, "Get under way")
				})
				all.Go(func() { fails(w.Get(r.ctx, 0, weights(1), 0, make([]byte, 1)), "Get") })
			}
			all.Wait()
			r.endpoint.Abort(errors.New("consequence"))
		})
	}
}
