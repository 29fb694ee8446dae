package runner

import (
	"context"

	"github.com/weir-ml/weir/schedule/runner/internal/calls"
	"github.com/weir-ml/weir/transport"
)

// links transfers tensors between a rank and the other ranks of its replica.
type links[T any] struct {
	transport transport.Transport[T] // nil if there is only one rank
	watcher   transport.Watcher      // nil if the transport is not a Watcher
	first     int                    // the first rank of the replica, counted over all replicas
	lent      []T                    // scratch: tensors that a transfer borrows during its call
	received  []T                    // tensors that a transfer has received, until they are handed over
}

// open finds out whether the transport is a Watcher, and makes room for the tensors of the largest transfer.
func (l *links[T]) open(list []calls.Stage[T]) {
	l.watcher, _ = l.transport.(transport.Watcher)
	ports := 1 // a gradient that is sent at step end needs one
	for _, st := range list {
		ports = max(ports, len(st.In), len(st.Out))
	}
	l.received = make([]T, ports)
}

// send sends tensors to a rank.
func (l *links[T]) send(ctx context.Context, to int, tag transport.Tag, lent []T) error {
	return l.transport.Send(ctx, l.first+to, tag, lent)
}

// wait waits until a rank has received what send sent.
func (l *links[T]) wait(ctx context.Context, to int, tag transport.Tag) error {
	return l.transport.Wait(ctx, l.first+to, tag)
}

// receive returns the received tensors, one per port, with the zero T for ports without a gradient.
// The tensors stay in l.received until the caller hands them over.
func (l *links[T]) receive(ctx context.Context, from int, tag transport.Tag, ports int, none uint64) ([]T, error) {
	var zero T
	h := l.received[:0]
	for i := range ports {
		if none>>i&1 == 0 {
			h = append(h, zero)
		}
	}
	if err := l.transport.Recv(ctx, l.first+from, tag, h); err != nil {
		return nil, err
	}
	n := len(h)
	h = h[:ports]
	for i := ports - 1; n < i+1; i-- { // spread the tensors over the ports, last one first
		if none>>i&1 == 0 {
			n--
			h[i], h[n] = h[n], zero
		}
	}
	return h, nil
}
