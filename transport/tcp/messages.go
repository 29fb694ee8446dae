package tcp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/transport"
)

// Capacity returns Config.Capacity.
func (e *Endpoint[T]) Capacity() int { return e.cfg.Capacity }

// Send waits for room on the link and lends h to the link's goroutine. If the capacity is 0, it
// then waits until h has been received.
func (e *Endpoint[T]) Send(ctx context.Context, to int, tag transport.Tag, h []T) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wait[T]{reason: waitRoom, tag: tag, action: tag.Receives(), peer: to}
	var err error
	if w.link, err = e.link(ctx, w); err != nil {
		return err
	}
	if err := e.await(ctx, w); err != nil {
		return e.linkError(err, w)
	}
	w.link.Push(tag, h)
	select {
	case w.link.wake <- struct{}{}:
	default: // the writer has not received the last signal yet
	}
	if e.cfg.Capacity != 0 {
		return nil
	}
	w.reason, w.number = waitReceipt, w.link.Sent
	return e.linkError(e.await(ctx, w), w)
}

// Wait waits until the message with the tag has been received.
func (e *Endpoint[T]) Wait(ctx context.Context, to int, tag transport.Tag) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wait[T]{reason: waitReceipt, tag: tag, action: tag.Receives(), peer: to}
	if err := e.checkLink(&w); err != nil {
		return err
	}
	if w.link = e.sending[direction{to, tag.Backward()}]; w.link == nil {
		return nil // nothing was sent
	}
	w.number = w.link.Number(tag)
	return e.linkError(e.await(ctx, w), w)
}

// Recv waits for the next message on the link and reads it into buffers of the rank's space.
func (e *Endpoint[T]) Recv(ctx context.Context, from int, tag transport.Tag, h []T) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wait[T]{reason: waitConnection, tag: tag, action: tag.Sends(), peer: from}
	if err := e.checkLink(&w); err != nil {
		return err
	}
	if err := e.await(ctx, w); err != nil {
		return err
	}
	k := e.receiving[direction{from, tag.Backward()}]
	if e.watch(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.reason, w.since = waitMessage, time.Now()
	e.wait, e.reading = w, k.conn
	e.mu.Unlock()
	err := receive(&e.cfg, k, e.codec, from, tag, h)
	e.mu.Lock()
	e.reading = nil
	e.endWait()
	if err == nil {
		return nil
	}
	if ended := e.endCause(&w); ended != nil {
		return ended
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, mismatch := err.(*transport.TagError); mismatch {
		return err
	}
	return e.awaitCause(err, w)
}

// link returns the link to a rank, and dials it if it is new.
func (e *Endpoint[T]) link(ctx context.Context, w wait[T]) (*sendEnd[T], error) {
	if err := e.checkLink(&w); err != nil {
		return nil, err
	}
	d := direction{w.peer, w.tag.Backward()}
	if l := e.sending[d]; l != nil {
		return l, nil
	}
	dialing, cancel := context.WithTimeout(ctx, min(e.cfg.Silence, handshake))
	defer cancel()
	e.cancelDial = cancel
	epoch := e.epoch
	e.mu.Unlock()
	conn, err := e.cfg.dialLink(dialing, e.addresses[w.peer], purposeLink, opening{e.cfg.Rank, w.tag.Backward(), epoch})
	e.mu.Lock()
	e.cancelDial = nil
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, e.awaitCause(fmt.Errorf("tcp: rank %d connects to rank %d: %w", e.cfg.Rank, w.peer, diagnostic.Limit(err)), w)
	}
	if err := e.endCause(&w); err != nil {
		closeNow(conn) // the step is over
		return nil, err
	}
	l := &sendEnd[T]{to: w.peer, conn: conn, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	e.sending[d] = l
	e.writers.Go(func() { e.write(l) })
	e.readers.Go(func() { e.confirmations(l) })
	return l, nil
}

// checkLink returns an error if a wait's link cannot be used.
func (e *Endpoint[T]) checkLink(w *wait[T]) error {
	if err := e.endCause(w); err != nil {
		return err
	}
	if w.peer < 0 || w.peer >= e.cfg.Ranks || w.peer == e.cfg.Rank {
		return fmt.Errorf("tcp: no link between rank %d and rank %d of %d", e.cfg.Rank, w.peer, e.cfg.Ranks)
	}
	return nil
}

// linkError replaces the error from a broken link with the cause of the abort, if there is one. It
// keeps a *transport.TagError.
func (e *Endpoint[T]) linkError(err error, w wait[T]) error {
	if err == nil || w.link.fault != err {
		return err
	}
	if _, mismatch := err.(*transport.TagError); mismatch {
		return err
	}
	return e.awaitCause(err, w)
}

// watch makes the current Recv return when the context ends. It does nothing if the context is the same as in
// the last call, which is the case for most calls in a step.
func (e *Endpoint[T]) watch(ctx context.Context) {
	done := ctx.Done()
	if done == e.watched {
		return
	}
	if e.unwatch != nil {
		e.unwatch()
	}
	e.watched, e.unwatch = done, nil
	if done == nil {
		return
	}
	e.unwatch = context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.watched == done && e.reading != nil {
			closeNow(e.reading) // the step is over
		}
	})
}

// addLink takes over the connection of a link from a sender. It closes the connection if the job or
// the step has ended, if the sender is not another rank of the job, or if the link already has a
// connection of this or a later step.
func (e *Endpoint[T]) addLink(conn net.Conn, o opening) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := direction{o.From, o.Backward}
	old := e.receiving[d]
	if e.jobError != nil || o.From < 0 || o.From >= e.cfg.Ranks || o.From == e.cfg.Rank ||
		o.Epoch < e.epoch || o.Epoch == e.epoch && e.cause != nil || old != nil && old.epoch >= o.Epoch {
		closeNow(conn) // the sender notices
		return
	}
	if old != nil {
		closeNow(old.conn) // left over from an earlier step
	}
	k := &recvEnd{conn: newBeating(conn, e.cfg.Silence), epoch: o.Epoch, r: bufio.NewReaderSize(timedConn{conn, e.pauses}, readBuffer)}
	k.conn.start()
	e.receiving[d] = k
	e.waiter.Wake()
}
