package transporttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/weir-ml/weir/transport"
)

func (s *suite[T]) exchange() {
	s.ranks(4, func(r *rank[T]) {
		for round := range 3 {
			bytesOf := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank), byte(round)}, 100*rank) }
			mine := bytesOf(r.number)
			all, err := r.endpoint.Exchange(r.ctx, mine)
			if !r.succeeds(err, "Exchange") {
				return
			}
			clear(mine) // the caller may reuse it
			if len(all) != 4 {
				r.errorf("Exchange returns %d ranks of 4", len(all))
				return
			}
			for rank := range all {
				if !bytes.Equal(all[rank], bytesOf(rank)) {
					r.errorf("Exchange returns %d wrong bytes for rank %d", len(all[rank]), rank)
				}
			}
		}
	})
}

func (s *suite[T]) begins() {
	if !s.link(3) {
		return
	}
	var last flag
	s.each(func(r *rank[T]) {
		if r.number == 2 {
			last.unsetAfterPause()
			last.Store(true)
		}
		if r.succeeds(r.endpoint.Begin(r.ctx, nil), "Begin") && !last.Load() {
			r.errorf("Begin returns before every rank has called it")
		}
	})
}

// hellos makes each rank in turn begin a step that differs from that of the others. No rank may begin its step,
// and the next step must work. A rank without a hello joins any step.
func (s *suite[T]) hellos() {
	if !s.link(3) {
		return
	}
	for odd := range 3 {
		s.each(func(r *rank[T]) {
			hello := []byte("planted step with 64 microbatches")
			if r.number == odd {
				hello = []byte("planted step with 65 microbatches")
			}
			err := r.endpoint.Begin(r.ctx, hello)
			clear(hello) // the caller may reuse it
			if !errors.Is(err, transport.ErrRanks) {
				r.errorf("Begin returns %v although rank %d begins another step, want an error that wraps ErrRanks", err, odd)
				return
			}
			for _, want := range []string{fmt.Sprintf("rank %d begins", odd), "with 64 microbatches", "with 65 microbatches"} {
				if !strings.Contains(err.Error(), want) {
					r.errorf("Begin returns %q, which lacks %q", err, want)
				}
			}
		})
		s.each(func(r *rank[T]) {
			hello := []byte("planted step")
			if r.number == odd {
				hello = nil
			}
			if r.succeeds(r.endpoint.Begin(r.ctx, hello), "Begin in the step after one that ranks begin differently") {
				_, err := r.endpoint.Exchange(r.ctx, nil)
				r.succeeds(err, "Exchange in the step after one that ranks begin differently")
			}
		})
	}
}

// blocks makes a call that blocks because peer does not make the matching call.
func (r *rank[T]) blocks(ctx context.Context, call string, peer int) error {
	switch call {
	case "Begin":
		return r.endpoint.Begin(ctx, nil)
	case "Exchange":
		_, err := r.endpoint.Exchange(ctx, nil)
		return err
	case "Recv":
		return r.endpoint.Recv(ctx, peer, output(0), make([]T, 1))
	}
	for m := 0; ; m++ { // Wait blocks after the first Send, Send when the link is full
		h, err := r.Make(r.number, 1)
		if err == nil {
			err = r.endpoint.Send(ctx, peer, gradient(m), []T{h})
		}
		if err == nil && call == "Wait" {
			return r.endpoint.Wait(ctx, peer, gradient(m))
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
}

func (s *suite[T]) aborts() {
	cause, second := errors.New("planted cause"), errors.New("planted second cause")
	for _, call := range []string{"Recv", "Exchange", "Send", "Wait"} {
		if call == "Send" && s.capacity < 0 {
			continue
		}
		var blocked flag
		s.ranks(3, func(r *rank[T]) {
			if r.number == 0 {
				blocked.unsetAfterPause()
				r.endpoint.Abort(cause)
				r.endpoint.Abort(second)
			} else {
				r.wraps(r.blocks(r.ctx, call, 0), cause, call+" under way")
				r.endpoint.Abort(second)
			}
			r.wraps(r.endpoint.Recv(r.ctx, (r.number+1)%3, output(5), make([]T, 1)), cause, "a later Recv")
			h, err := r.Make(r.number, 1)
			r.succeeds(err, "Make")
			r.wraps(r.endpoint.Send(r.ctx, (r.number+1)%3, output(5), []T{h}), cause, "a later Send")
			_, err = r.endpoint.Exchange(r.ctx, nil)
			r.wraps(err, cause, "a later Exchange")
		})
		s.step(func(r *rank[T]) { // the next step works
			if _, err := r.endpoint.Exchange(r.ctx, []byte{1}); err != nil {
				r.errorf("Exchange in the step after an abort in %s: %v", call, err)
			}
		})
	}
}

func (s *suite[T]) forgets() {
	if s.capacity == 0 {
		return // the links are empty
	}
	cause := errors.New("planted cause")
	s.ranks(2, func(r *rank[T]) {
		if r.number == 0 {
			h := r.send(1, output(0), 1)
			r.endpoint.Abort(cause)
			r.succeeds(r.Write(0, h, 2), "Write after Abort") // the race detector reports a rank that still reads h
			r.succeeds(r.Release(0, h), "Release")
			return
		}
		h := make([]T, 1)
		if err := r.endpoint.Recv(r.ctx, 0, output(0), h); err == nil { // the message arrived before the abort
			r.succeeds(r.Release(1, h[0]), "Release")
		}
		r.endpoint.Abort(errors.New("late"))
	})
	s.step(func(r *rank[T]) {
		if r.number == 0 {
			r.wait(1, output(3), r.send(1, output(3), 4))
		} else {
			r.recv(0, output(3), 4)
		}
	})
}

func (s *suite[T]) cancels() {
	cause := errors.New("planted reason")
	for _, call := range []string{"Recv", "Exchange", "Begin"} {
		s.ranks(2, func(r *rank[T]) {
			if r.number == 0 {
				return
			}
			ctx, cancel := context.WithCancelCause(r.ctx)
			go func() {
				var blocked flag
				blocked.unsetAfterPause()
				cancel(cause)
			}()
			r.wraps(r.blocks(ctx, call, 0), cause, call+" under a cancelled context")
			if call != "Begin" { // Begin has not begun a step
				r.endpoint.Abort(cause)
			}
		})
		s.step(func(r *rank[T]) {
			_, err := r.endpoint.Exchange(r.ctx, nil)
			r.succeeds(err, "Exchange in the step after one that a context ended")
		})
	}
}

// closes ends the context of all ranks while the last rank enters an exchange. Either all ranks get the
// result or none does. If they get it, the step is done: although the context has ended, they can still
// exchange and read what a trainer needs for its update.
func (s *suite[T]) closes() {
	cause := errors.New("planted reason")
	if !s.link(3) {
		return
	}
	for round := range 48 {
		ctx, cancel := context.WithCancelCause(context.Background())
		var waiting sync.WaitGroup
		waiting.Add(2)
		var done [3]bool
		s.step(func(r *rank[T]) {
			stop := context.AfterFunc(r.ctx, func() { cancel(r.ctx.Err()) })
			defer stop()
			if r.number == round%3 {
				waiting.Wait()
				for range round {
					runtime.Gosched()
				}
				go cancel(cause)
			} else {
				waiting.Done()
			}
			_, err := r.endpoint.Exchange(ctx, []byte{1})
			if done[r.number] = err == nil; err != nil {
				r.wraps(err, cause, "Exchange under a context that ends")
				r.endpoint.Abort(err)
				return
			}
			w, ok := r.endpoint.(transport.Windows)
			if ok && r.succeeds(w.Expose(weights(r.number), pattern(64, r.number)), "Expose in a step that is done") {
				r.get((r.number+1)%3, weights((r.number+1)%3), 0, 64, (r.number+1)%3)
			}
			for range 2 {
				_, err = r.endpoint.Exchange(ctx, nil)
				r.succeeds(err, "Exchange in a step that is done")
			}
		})
		cancel(nil)
		if done != [3]bool{} && done != [3]bool{true, true, true} {
			s.fault(-1, "a step is done on some ranks only: %v", done)
		}
	}
}

// loses kills a rank while the others are in a call: each of them must get an error, and none may
// begin another step.
func (s *suite[T]) loses() {
	if s.Kill == nil {
		return
	}
	for _, call := range []string{"Recv", "Exchange", "Begin", "Wait"} {
		for lost := range 3 {
			var begun sync.WaitGroup // a rank that is lost earlier may prevent the others from beginning
			begun.Add(3)
			s.ranks(3, func(r *rank[T]) {
				begun.Done()
				if r.number == lost {
					var blocked flag
					begun.Wait()
					blocked.unsetAfterPause()
					s.Kill(r.endpoint)
					return
				}
				if err := r.blocks(r.ctx, call, (r.number+1)%3); err == nil || r.ctx.Err() != nil {
					r.errorf("%s returns %v after rank %d was lost: %v", call, err, lost, r.ctx.Err())
				}
				r.endpoint.Abort(errors.New("consequence"))
				if err := r.endpoint.Begin(r.ctx, nil); err == nil || r.ctx.Err() != nil {
					r.errorf("Begin returns %v after rank %d was lost", err, lost)
				}
			})
		}
	}
}
