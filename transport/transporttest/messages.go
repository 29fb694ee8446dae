package transporttest

import (
	"errors"

	"github.com/weir-ml/weir/transport"
)

// several is a number of messages larger than any tested capacity.
const several = 9

func (s *suite[T]) capacities() {
	if !s.link(2) {
		return
	}
	for rank, end := range s.ends {
		if got := end.Capacity(); got != s.capacity {
			s.fault(rank, "Capacity returns %d", got)
		}
	}
}

func (s *suite[T]) order() {
	s.ranks(2, func(r *rank[T]) {
		for m := range several {
			if r.number == 0 {
				h := r.send(1, output(m), float64(m))
				defer r.wait(1, output(m), h)
			} else {
				r.recv(0, output(m), float64(m))
			}
		}
	})
}

func (s *suite[T]) tensors() {
	s.ranks(2, func(r *rank[T]) {
		for m, n := range []int{0, 3, 1, 64} {
			h := make([]T, n)
			if r.number == 1 {
				if !r.succeeds(r.endpoint.Recv(r.ctx, 0, output(m), h), "Recv") {
					return
				}
				for i := range h {
					r.hasValue(h[i], float64(100*m+i))
					r.succeeds(r.Release(1, h[i]), "Release")
				}
				continue
			}
			for i := range h {
				var err error
				if h[i], err = r.Make(0, float64(100*m+i)); !r.succeeds(err, "Make") {
					return
				}
			}
			sent := append([]T{}, h...)
			r.succeeds(r.endpoint.Send(r.ctx, 1, output(m), sent), "Send")
			clear(sent) // the sender may reuse the slice
			r.succeeds(r.endpoint.Wait(r.ctx, 1, output(m)), "Wait")
			for i := range h {
				r.succeeds(r.Release(0, h[i]), "Release")
			}
		}
	})
}

func (s *suite[T]) copies() {
	s.ranks(2, func(r *rank[T]) {
		if r.number == 0 {
			h := r.send(1, output(0), 1)
			r.succeeds(r.endpoint.Wait(r.ctx, 1, output(0)), "Wait")
			r.succeeds(r.Write(0, h, 2), "Write")
			next := r.send(1, output(1), 5)
			r.wait(1, output(1), next)
			r.hasValue(h, 2)
			r.succeeds(r.Release(0, h), "Release")
			return
		}
		h := make([]T, 1)
		if r.succeeds(r.endpoint.Recv(r.ctx, 0, output(0), h), "Recv") {
			r.hasValue(h[0], 1)
			r.succeeds(r.Write(1, h[0], 3), "Write")
			r.recv(0, output(1), 5) // sent after the sender has changed its buffer
			r.hasValue(h[0], 3)
			r.succeeds(r.Release(1, h[0]), "Release")
		}
	})
}

func (s *suite[T]) full() {
	if s.capacity < 0 {
		return
	}
	var room, taken flag
	s.ranks(2, func(r *rank[T]) {
		if r.number == 1 {
			for !room.Load() { // a link takes messages up to its capacity without a receiver
				if r.ctx.Err() != nil {
					r.errorf("Send blocks before %d messages are on the link", r.capacity)
					return
				}
				room.unsetAfterPause()
			}
			if !taken.unsetAfterPause() {
				r.errorf("Send returns with %d messages on the link", r.capacity+1)
			}
			for m := range r.capacity + 1 {
				r.recv(0, output(m), float64(m))
			}
			return
		}
		for m := range r.capacity {
			h := r.send(1, output(m), float64(m))
			defer r.wait(1, output(m), h)
		}
		room.Store(true)
		h := r.send(1, output(r.capacity), float64(r.capacity))
		taken.Store(true)
		r.wait(1, output(r.capacity), h)
	})
}

func (s *suite[T]) waits() {
	if s.capacity == 0 {
		return // Send has blocked
	}
	var sent, received flag
	s.ranks(2, func(r *rank[T]) {
		if r.number == 0 {
			h := r.send(1, output(0), 1)
			sent.Store(true)
			r.wait(1, output(0), h)
			received.Store(true)
			r.succeeds(r.endpoint.Wait(r.ctx, 1, output(0)), "a second Wait")
			return
		}
		for !sent.Load() && r.ctx.Err() == nil {
			sent.unsetAfterPause()
		}
		if !received.unsetAfterPause() {
			r.errorf("Wait returns before the receipt")
		}
		r.recv(0, output(0), 1)
	})
}

func (s *suite[T]) tags() {
	for _, wrong := range []struct {
		tag     transport.Tag
		tensors int
	}{{output(1), 1}, {transport.Tag{Step: 8, Stage: 3}, 1}, {transport.Tag{Step: 7, Stage: 2}, 1}, {output(0), 2}} {
		s.ranks(2, func(r *rank[T]) {
			if r.number == 1 {
				err := r.endpoint.Recv(r.ctx, 0, wrong.tag, make([]T, wrong.tensors))
				var mismatch *transport.TagError
				if !errors.As(err, &mismatch) {
					r.errorf("Recv of %v for %v returns %v, want a *TagError", output(0), wrong.tag, err)
					return
				}
				if mismatch.Sent != output(0) || mismatch.Expected != wrong.tag || mismatch.From != 0 || mismatch.To != 1 ||
					mismatch.Tensors != 1 || mismatch.ExpectedOf != wrong.tensors {
					r.errorf("the *TagError is %+v", *mismatch)
				}
				return
			}
			h, err := r.Make(0, 1)
			r.succeeds(err, "Make")
			err = r.endpoint.Send(r.ctx, 1, output(0), []T{h})
			if err == nil {
				err = r.endpoint.Wait(r.ctx, 1, output(0))
			}
			if err == nil {
				r.errorf("the sender does not learn that %v met %v with %d tensors", output(0), wrong.tag, wrong.tensors)
			}
		})
	}
}

func (s *suite[T]) apart() {
	if s.capacity == 0 {
		return // the test needs more than one Send in flight
	}
	s.ranks(3, func(r *rank[T]) {
		switch r.number {
		case 0:
			forward, back := r.send(2, output(0), 1), r.send(2, gradient(0), 2)
			r.wait(2, gradient(0), back)
			r.wait(2, output(0), forward)
		case 1:
			h := r.send(2, output(0), 3)
			r.wait(2, output(0), h)
		case 2: // in any order between the links
			r.recv(1, output(0), 3)
			r.recv(0, gradient(0), 2)
			r.recv(0, output(0), 1)
		}
	})
}

// traffic sends between all pairs of ranks, with enough messages for rings to wrap around.
func (s *suite[T]) traffic() {
	const ranks, rounds = 4, 50
	s.ranks(ranks, func(r *rank[T]) {
		for m := range rounds {
			for from := range ranks {
				for to := range ranks {
					tag, value := output(m), float64(1000*m+10*from+to)
					if to < from {
						tag = gradient(m)
					}
					switch {
					case from == to:
					case from == r.number:
						r.wait(to, tag, r.send(to, tag, value))
					case to == r.number:
						r.recv(from, tag, value)
					}
				}
			}
		}
	})
}
