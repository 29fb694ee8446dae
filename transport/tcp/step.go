package tcp

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/transport"
)

// Begin waits for all ranks. Rank 0 compares their hellos. If the context ends first, Begin withdraws
// from the step, unless all ranks have begun it by then.
func (e *Endpoint[T]) Begin(ctx context.Context, hello []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobError != nil {
		return e.jobError
	}
	if len(hello) > transport.MaxHello {
		return fmt.Errorf("tcp: a hello of %d bytes: at most %d", len(hello), transport.MaxHello)
	}
	epoch := e.epoch
	e.withdrawn, e.helloError = false, nil
	e.postToHub(frame{kind: begin, data: append([]byte{}, hello...)})
	err := e.await(ctx, wait[T]{reason: waitBegin, peer: -1, number: epoch + 1})
	if err == nil || e.jobError != nil || e.helloError != nil {
		return err
	}
	e.postToHub(frame{kind: withdraw, epoch: epoch})
	if ended := e.await(context.Background(), wait[T]{reason: waitWithdrawal, peer: -1, number: epoch + 1}); ended != nil {
		return ended
	}
	if e.epoch > epoch {
		return nil // all ranks have begun
	}
	return err
}

// Exchange waits for all ranks. If the context ends first, and the step is not closed, Exchange tells
// rank 0 that it no longer waits. Rank 0 then aborts the step, or has already completed the exchange.
func (e *Endpoint[T]) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wait[T]{reason: waitAll, peer: -1}
	if len(mine) > maxExchange {
		return nil, fmt.Errorf("tcp: an exchange of %d bytes: at most %d", len(mine), maxExchange)
	}
	e.exchanged = nil
	if err := e.endCause(&w); err != nil {
		return nil, err
	}
	mine = append([]byte{}, mine...)
	if e.cfg.Sums {
		mine = binary.LittleEndian.AppendUint32(mine, transport.Sum(mine))
	}
	e.postToHub(frame{exchange, e.epoch, mine})
	if e.done {
		ctx = context.Background()
	}
	err := e.await(ctx, w)
	if err != nil && e.cause == nil && e.jobError == nil {
		e.proposal = err
		e.postToHub(frame{cancel, e.epoch, encodeCause(err)})
		err = e.await(context.Background(), w)
	}
	all := e.exchanged
	e.exchanged = nil
	if !e.cfg.Sums || err != nil {
		return all, err
	}
	for rank, sent := range all {
		n := len(sent) - 4
		if n < 0 {
			return nil, fmt.Errorf("tcp: the exchange with rank %d: %w: there is none", rank, transport.ErrSum)
		}
		if err := transport.Compare(transport.Sum(sent[:n]), binary.LittleEndian.Uint32(sent[n:])); err != nil {
			return nil, fmt.Errorf("tcp: the exchange with rank %d: %w", rank, err)
		}
		all[rank] = sent[:n]
	}
	return all, nil
}

// Abort ends the step on all ranks. It waits until rank 0 has determined the first cause, and until
// no goroutine reads this rank's buffers or exposed memory.
func (e *Endpoint[T]) Abort(cause error) {
	e.mu.Lock()
	if e.cause == nil && e.jobError == nil {
		e.proposal = cause
		e.postToHub(frame{abort, e.epoch, encodeCause(cause)})
		_ = e.await(context.Background(), wait[T]{reason: waitCause, peer: -1}) // the error is the cause
	}
	e.closeLinks()
	e.mu.Unlock()
	e.writers.Wait()
	e.windows.Drain(context.Background())
}

// postToHub posts a frame to the hub without holding the lock.
func (e *Endpoint[T]) postToHub(f frame) {
	e.mu.Unlock()
	defer e.mu.Lock()
	e.toHub(f)
}

// deliver handles a frame from the hub.
func (e *Endpoint[T]) deliver(f frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.waiter.Wake()
	switch f.kind {
	case begun:
		e.epoch, e.cause, e.proposal, e.exchanged, e.done, e.waited = f.epoch, nil, nil, nil, false, 0
		if e.stepContext.Err() != nil {
			e.stepContext, e.cancelStep = context.WithCancelCause(context.Background())
		}
		e.windows.Begin(f.epoch)
		e.action.Store(0)
		e.position.Store(-1)
	case differ:
		e.helloError = diagnostic.Errorf(transport.ErrRanks, "%s", f.data)
	case withdrawn:
		e.withdrawn = true
	case exchanged:
		if all, err := decodeAll(f.data, e.cfg.Ranks); err == nil && f.epoch == e.epoch {
			e.exchanged, e.done = all, true
		}
	case abort:
		if f.epoch == e.epoch && e.cause == nil && len(f.data) > 4 {
			rank := int(binary.LittleEndian.Uint32(f.data))
			if e.cause = decodeCause(rank, f.data[4:]); e.proposal != nil && rank == e.cfg.Rank {
				e.cause = e.proposal // the original error, with its type
			}
			e.closeLinks()
		}
	case lost:
		l := &LostError{pipeline: e.cfg.Pipeline}
		if json.Unmarshal(f.data, l) == nil {
			l.own = l.Rank == e.cfg.Rank
			e.endJob(l)
		}
	}
}

// closeLinks closes the connections of an ended step. The caller holds the lock.
func (e *Endpoint[T]) closeLinks() {
	if e.cancelDial != nil {
		e.cancelDial()
	}
	for _, l := range e.sending {
		close(l.stop)
		closeNow(l.conn) // bytes in transit belong to the ended step
	}
	for d, k := range e.receiving {
		if k.epoch <= e.epoch || e.jobError != nil {
			closeNow(k.conn)
			delete(e.receiving, d)
		}
	}
	clear(e.sending)
	e.closeWindows(cmp.Or(e.jobError, e.cause))
}
