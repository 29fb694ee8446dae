package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/internal/messages"
)

// Endpoint is one rank's end of a job: a [transport.Transport], a [transport.Watcher] and a
// [transport.Windows].
//
// The methods are in several files: endpoint.go joins and leaves the job, step.go begins and ends
// steps, messages.go sends and receives, windows.go reads exposed memory, waits.go implements waiting
// for all of them, and status.go reports what the rank is doing.
type Endpoint[T any] struct {
	cfg        Config
	codec      transport.Codec[T]
	addresses  []string // where each rank accepts links, by rank
	acceptor   *acceptor
	hub        *hub // nil except on rank 0
	peers      []*peer
	pauses     *pauses
	toHub      func(frame)
	jobContext context.Context // done when the job has ended
	cancelJob  context.CancelCauseFunc
	lastAction atomic.Uint64 // the previous action
	action     atomic.Uint64 // the current action
	position   atomic.Int64  // how many actions of the step precede the current one
	step       atomic.Int64  // the step's number in the runner
	waiter     messages.Waiter
	writers    sync.WaitGroup // the links' writing goroutines
	readers    sync.WaitGroup // the goroutines that read confirmations
	servers    sync.WaitGroup // the goroutines that serve other ranks' reads
	windows    messages.Windows
	bytesRead  atomic.Int64 // number of bytes read from other ranks' windows

	mu          sync.Mutex
	closed      bool
	jobError    error // the reason why the job has ended, or nil
	epoch       int64
	cause       error // the cause of this epoch's abort
	proposal    error // this rank's proposal for cause
	withdrawn   bool
	helloError  error    // the reason why the step has not begun
	exchanged   [][]byte // the result of Exchange
	done        bool     // an Exchange of this epoch has succeeded
	sending     map[direction]*sendEnd[T]
	receiving   map[direction]*recvEnd
	servedConns map[net.Conn]int64 // connections on which other ranks read, with the epochs in which they were dialed
	idle        map[int][]net.Conn // connections for reading that no Get is using, by rank
	cancelDial  context.CancelFunc
	reading     net.Conn // the connection of the current Recv
	wait        wait[T]
	waited      time.Duration   // since Begin
	waits       []time.Duration // since Join, by the awaited rank
	watched     <-chan struct{} // the Done channel of the context that ends a Recv
	unwatch     func() bool

	stepContext context.Context // done when the step is aborted
	cancelStep  context.CancelCauseFunc
}

// Join joins a job and returns once all its ranks have joined. codec is the codec of the rank's space. The
// caller must close the endpoint, after the runner. If ranks did not join in time, the error wraps ErrMissing
// and names them. If rank 0 refused a rank, it wraps ErrRefused and gives the reason.
func Join[T any](ctx context.Context, cfg Config, codec transport.Codec[T]) (*Endpoint[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if ctx == nil || codec == nil {
		return nil, errors.New("tcp: the context or the codec of Join is nil: pass context.Background() if there is no other context, and the device of the rank as the codec")
	}
	e := &Endpoint[T]{cfg: cfg.complete(), codec: codec, sending: map[direction]*sendEnd[T]{}, receiving: map[direction]*recvEnd{}, waits: make([]time.Duration, cfg.Ranks)}
	if cfg.Sums {
		e.codec = transport.Summed(codec)
	}
	e.servedConns, e.idle = map[net.Conn]int64{}, map[int][]net.Conn{}
	e.waiter = messages.NewWaiter(&e.mu)
	e.stepContext, e.cancelStep = context.WithCancelCause(context.Background())
	e.jobContext, e.cancelJob = context.WithCancelCause(context.Background())
	e.acceptor = &acceptor{cfg: &e.cfg, onLink: e.addLink, onWindow: e.addWindow, onShortage: e.short}
	e.pauses = newPauses(e.cfg.Silence)
	var err error
	if cfg.Rank == 0 {
		err = e.startJob(ctx)
	} else {
		err = e.joinJob(ctx)
	}
	if err != nil {
		if e.pauses.stop(); e.acceptor.listener != nil {
			err = errors.Join(err, e.acceptor.close())
		}
		return nil, err
	}
	return e, nil
}

// startJob implements Join on rank 0.
func (e *Endpoint[T]) startJob(ctx context.Context) (err error) {
	c := &e.cfg
	meeting := newMeeting(c, cmp.Or(c.Advertise, c.Address))
	e.acceptor.meeting = meeting
	if e.acceptor.listener, err = c.open(ctx, cmp.Or(c.Listen, c.Address)); err != nil {
		return fmt.Errorf("tcp: rank 0 listens: %w", err)
	}
	e.acceptor.serve()
	if c.Ranks == 1 {
		meeting.finish(nil)
	}
	conns, addresses, err := meeting.wait(ctx)
	if err != nil {
		return err
	}
	e.addresses, e.hub = addresses, newHub(c.Ranks, c.Stall, e.Status)
	e.mu.Lock()
	e.toHub = func(f frame) { _ = e.hub.receive(0, f) } // it fails only on frames of an unknown kind
	e.mu.Unlock()
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	e.hub.ranks[0].post = e.deliver
	for rank, conn := range conns {
		if conn == nil {
			continue
		}
		p := newPeer(conn, c, e.pauses, maxExchange, e.Status,
			func(f frame) error { return e.hub.receive(rank, f) },
			func(err error) { e.hub.loseRank(e.pauses.lost(0, rank, err)) })
		e.hub.ranks[rank].post = p.post
		e.peers = append(e.peers, p)
	}
	return nil
}

// joinJob implements Join on the other ranks.
func (e *Endpoint[T]) joinJob(ctx context.Context) error {
	c := &e.cfg
	conn, addresses, err := c.connectToHub(ctx, func(conn net.Conn) (string, error) {
		listen := c.Listen
		if network, path, _ := split(c.Address); c.Network != nil {
			// The Network picks a free address.
		} else if listen == "" && network == "unix" {
			listen = fmt.Sprintf("unix:%s.%d", path, c.Rank)
		} else if listen == "" {
			host, _, err := net.SplitHostPort(conn.LocalAddr().String())
			if err != nil {
				return "", err
			}
			listen = "tcp:" + net.JoinHostPort(host, "0")
		}
		var err error
		if e.acceptor.listener, err = c.open(ctx, listen); err != nil {
			return "", fmt.Errorf("tcp: rank %d listens: %w", c.Rank, err)
		}
		e.acceptor.serve()
		at := e.acceptor.listener.Addr()
		return cmp.Or(c.Advertise, at.Network()+":"+at.String()), nil
	})
	if err != nil {
		return err
	}
	e.addresses = addresses
	p := newPeer(conn, c, e.pauses, int(min(int64(c.Ranks)*(maxExchange+4), math.MaxInt)), e.Status, func(f frame) error { e.deliver(f); return nil },
		func(err error) {
			rank, why := e.pauses.lost(c.Rank, 0, err)
			e.endJobWith(&LostError{Rank: rank, Reason: why, pipeline: c.Pipeline, own: rank == c.Rank})
		})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peers, e.toHub = []*peer{p}, p.post
	return nil
}

// endJobWith is endJob for callers that do not hold the lock.
func (e *Endpoint[T]) endJobWith(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endJob(err)
	e.waiter.Wake()
}

// endJob ends the job with the first error. The caller holds the lock.
func (e *Endpoint[T]) endJob(err error) {
	if e.jobError == nil {
		e.jobError = err
		e.closeLinks()
		e.cancelJob(err)
	}
}

// short ends the step because this rank cannot accept connections, so the ranks that connect to it would wait
// in vain. If this is rank 0 and some ranks have not joined yet, it gives err as the reason when it stops
// waiting for them.
func (e *Endpoint[T]) short(err error) {
	if m := e.acceptor.meeting; m != nil {
		m.addRefusal("a connection", err.Error())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.toHub != nil && e.cause == nil && e.jobError == nil {
		e.postToHub(frame{abort, e.epoch, encodeCause(err)})
	}
}

// Context returns a context that ends with parent or with the job, so that a long computation stops
// when a rank is lost.
func (e *Endpoint[T]) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(e.jobContext, func() { cancel(context.Cause(e.jobContext)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Close leaves the job. After that the other ranks cannot begin a step.
func (e *Endpoint[T]) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.endJob(transport.ErrClosed)
	if e.unwatch != nil {
		e.unwatch()
	}
	e.mu.Unlock()
	err := e.acceptor.close()
	if e.hub != nil {
		e.hub.mu.Lock()
		e.hub.lost = true // ranks that leave from now on do not count as lost
		e.hub.mu.Unlock()
	}
	var all sync.WaitGroup
	for _, p := range e.peers {
		all.Go(p.leave)
	}
	all.Wait()
	e.writers.Wait()
	e.readers.Wait()
	e.servers.Wait()
	e.pauses.stop()
	return err
}
