package tcp

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/internal/messages"
)

// Endpoint is one rank's end of a job: a [transport.Transport], a [transport.Watcher] and a
// [transport.Windows].
type Endpoint[T any] struct {
	cfg        Config
	codec      transport.Codec[T]
	addresses  []string // of the links, by rank
	acceptor   *acceptor
	hub        *hub // on rank 0
	peers      []*peer
	toHub      func(frame)
	jobContext context.Context // done when the job is over
	cancelJob  context.CancelCauseFunc
	last       atomic.Uint64 // the action before the current one
	running    atomic.Uint64 // the current action
	position   atomic.Int64  // of the current action
	step       atomic.Int64  // the runner's number of the step
	waiter     messages.Waiter
	writers    sync.WaitGroup // of links
	readers    sync.WaitGroup // of confirmations
	servers    sync.WaitGroup // of other ranks' reads
	windows    messages.Windows
	read       atomic.Int64 // bytes of other ranks' windows

	mu         sync.Mutex
	closed     bool
	jobError   error // why the job is over; nil before that
	epoch      int64
	cause      error // of the abort of this epoch
	proposal   error // this rank's proposal for cause
	withdrawn  bool
	helloError error    // why the step has not begun
	all        [][]byte // result of Exchange
	outs       map[direction]*out[T]
	ins        map[direction]*in
	serving    map[net.Conn]int64 // connections on which other ranks read, and the epochs in which they were dialed
	idle       map[int][]net.Conn // connections to read from a rank that no Get uses
	dialing    context.CancelFunc
	reading    net.Conn // of the current Recv
	wait       wait[T]
	waited     time.Duration   // since Begin
	waits      []time.Duration // since Join, by the awaited rank
	watched    <-chan struct{} // Done of the context that ends a Recv
	unwatch    func() bool

	stepContext context.Context // done when the step is aborted
	cancelStep  context.CancelCauseFunc
}

// wait is the reason why the rank waits.
type wait[T any] struct {
	reason waitReason
	tag    transport.Tag
	action schedule.Action // the awaited action; 0 at step end
	peer   int             // -1 for all
	link   *out[T]
	number int64 // of the message, or the epoch
	since  time.Time
}

type waitReason uint8

const (
	waitNone       waitReason = iota
	waitBegin                 // for all ranks to begin the step
	waitWithdrawal            // until rank 0 confirms the withdrawal, or the beginning
	waitRoom                  // of a Send, for the link to take another message
	waitReceipt               // for the receipt of a message
	waitConnection            // of a Recv, for the sender to connect
	waitMessage               // of a Recv, for a message
	waitAll                   // of an Exchange
	waitVerdict               // of an Abort, or of a call whose connection has ended, for the cause
)

// Join joins a job and returns when all its ranks have joined. codec is the codec of the rank's
// space. Close the endpoint after the runner. The error wraps ErrMissing and names the ranks that
// have not joined in time, or wraps ErrRefused and describes the contradiction with rank 0.
func Join[T any](ctx context.Context, cfg Config, codec transport.Codec[T]) (*Endpoint[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if ctx == nil || codec == nil {
		return nil, errors.New("tcp: the context or the codec of Join is nil: pass context.Background() if there is no other context, and the device of the rank as the codec")
	}
	e := &Endpoint[T]{cfg: cfg.complete(), codec: codec, outs: map[direction]*out[T]{}, ins: map[direction]*in{}, waits: make([]time.Duration, cfg.Ranks)}
	e.serving, e.idle = map[net.Conn]int64{}, map[int][]net.Conn{}
	e.waiter = messages.NewWaiter(&e.mu)
	e.stepContext, e.cancelStep = context.WithCancelCause(context.Background())
	e.jobContext, e.cancelJob = context.WithCancelCause(context.Background())
	e.acceptor = &acceptor{cfg: &e.cfg, onLink: e.addLink, onWindow: e.addWindow, onRefusal: func(string, string) {}, onJoin: func(conn net.Conn, _ hello) { _ = conn.Close() }}
	var err error
	if cfg.Rank == 0 {
		err = e.startJob(ctx)
	} else {
		err = e.joinJob(ctx)
	}
	if err != nil {
		if e.acceptor.listener != nil {
			err = errors.Join(err, e.acceptor.close())
		}
		return nil, err
	}
	return e, nil
}

// startJob is Join for rank 0.
func (e *Endpoint[T]) startJob(ctx context.Context) (err error) {
	c := &e.cfg
	address := c.Address
	if c.Advertise != "" {
		address = c.Advertise
	}
	meeting := newMeeting(c, address)
	e.acceptor.onJoin, e.acceptor.onRefusal = meeting.addRank, meeting.addRefusal
	listen := c.Address
	if c.Listen != "" {
		listen = c.Listen
	}
	if e.acceptor.listener, err = c.open(ctx, listen); err != nil {
		return fmt.Errorf("tcp: rank 0 listens: %w", err)
	}
	e.acceptor.serve()
	if c.Ranks == 1 {
		meeting.settle(nil)
	}
	conns, addresses, err := meeting.wait(ctx)
	if err != nil {
		return err
	}
	e.addresses, e.hub = addresses, newHub(c.Ranks, c.Stall, e.Standing)
	e.toHub = func(f frame) { _ = e.hub.receive(0, f) } // its own frames are of known kinds
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	e.hub.post[0] = e.deliver
	for rank, conn := range conns {
		if conn == nil {
			continue
		}
		p := newPeer(conn, c, mostExchange, e.Standing,
			func(f frame) error { return e.hub.receive(rank, f) },
			func(err error) { e.hub.lose(rank, reason(err, c.Silence)) })
		e.hub.post[rank] = p.post
		e.peers = append(e.peers, p)
	}
	return nil
}

// joinJob is Join for any other rank.
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
		if c.Advertise != "" {
			return c.Advertise, nil
		}
		return e.acceptor.listener.Addr().Network() + ":" + e.acceptor.listener.Addr().String(), nil
	})
	if err != nil {
		return err
	}
	e.addresses = addresses
	p := newPeer(conn, c, int(min(int64(c.Ranks)*(mostExchange+4), math.MaxInt)), e.Standing, func(f frame) error { e.deliver(f); return nil },
		func(err error) { e.endJobWith(&LostError{Reason: reason(err, c.Silence), pipeline: c.Pipeline}) })
	e.peers, e.toHub = []*peer{p}, p.post
	return nil
}

// addLink takes over the connection of a link. A connection of an aborted step is too late.
func (e *Endpoint[T]) addLink(conn net.Conn, o opening) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := direction{o.From, o.Backward}
	old := e.ins[d]
	if e.jobError != nil || o.From < 0 || o.From >= e.cfg.Ranks || o.From == e.cfg.Rank ||
		o.Epoch < e.epoch || o.Epoch == e.epoch && e.cause != nil || old != nil && old.epoch >= o.Epoch {
		closeNow(conn) // the sender sees it
		return
	}
	if old != nil {
		closeNow(old.conn) // it is from an earlier step
	}
	e.ins[d] = &in{conn: conn, r: bufio.NewReaderSize(conn, readBuffer), epoch: o.Epoch}
	e.waiter.Wake()
}

// deliver handles a frame of the hub.
func (e *Endpoint[T]) deliver(f frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.waiter.Wake()
	switch f.kind {
	case begun:
		e.epoch, e.cause, e.proposal, e.all, e.waited = f.epoch, nil, nil, nil, 0
		if e.stepContext.Err() != nil {
			e.stepContext, e.cancelStep = context.WithCancelCause(context.Background())
		}
		e.windows.Begin(f.epoch)
		e.running.Store(0)
		e.position.Store(-1)
	case differ:
		e.helloError = fmt.Errorf("%w%s", transport.ErrRanks, f.data)
	case withdrawn:
		e.withdrawn = true
	case exchanged:
		if all, err := decodeAll(f.data, e.cfg.Ranks); err == nil && f.epoch == e.epoch {
			e.all = all
		}
	case abort:
		if f.epoch == e.epoch && e.cause == nil && len(f.data) > 4 {
			rank := int(binary.LittleEndian.Uint32(f.data))
			if e.cause = decodeCause(rank, f.data[4:]); e.proposal != nil && rank == e.cfg.Rank {
				e.cause = e.proposal // the same error, with its type
			}
			e.closeLinks()
		}
	case lost:
		l := &LostError{pipeline: e.cfg.Pipeline}
		if json.Unmarshal(f.data, l) == nil {
			e.endJob(l)
		}
	}
}

// endJobWith ends the job.
func (e *Endpoint[T]) endJobWith(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endJob(err)
	e.waiter.Wake()
}

func (e *Endpoint[T]) endJob(err error) {
	if e.jobError == nil {
		e.jobError = err
		e.closeLinks()
		e.cancelJob(err)
	}
}

// closeLinks closes all links, because the step is over.
func (e *Endpoint[T]) closeLinks() {
	if e.dialing != nil {
		e.dialing()
	}
	for _, l := range e.outs {
		close(l.stop)
		closeNow(l.conn) // bytes in transit belong to the ended step
	}
	for d, k := range e.ins {
		if k.epoch <= e.epoch || e.jobError != nil {
			closeNow(k.conn)
			delete(e.ins, d)
		}
	}
	clear(e.outs)
	e.closeWindows(cmp.Or(e.jobError, e.cause))
}

// happened reports whether the awaited event has happened.
func (e *Endpoint[T]) happened(w *wait[T]) bool {
	switch w.reason {
	case waitBegin:
		return e.epoch >= w.number
	case waitWithdrawal:
		return e.withdrawn || e.helloError != nil || e.epoch >= w.number
	case waitRoom:
		return e.cfg.Capacity <= 0 || w.link.Sent-w.link.taken < int64(e.cfg.Capacity)
	case waitReceipt:
		return min(w.link.taken, w.link.written) >= w.number
	case waitConnection:
		return e.ins[direction{w.peer, w.tag.Backward()}] != nil
	case waitAll:
		return e.all != nil
	}
	return false
}

// endCause returns why a wait is over although the event has not happened. A step that all ranks
// have begun and an exchange that all ranks have received cannot end this way.
func (e *Endpoint[T]) endCause(w *wait[T]) error {
	switch {
	case (w.reason == waitBegin || w.reason == waitWithdrawal || w.reason == waitAll) && e.happened(w):
		return nil
	case e.jobError != nil && w.link == nil && w.peer < 0:
		return e.jobError
	case e.jobError != nil:
		return &waitError{w.action, w.tag, w.peer, e.jobError}
	case w.reason == waitBegin:
		return e.helloError
	case w.reason == waitWithdrawal:
		return nil
	case e.cause != nil:
		return e.cause
	case w.link != nil:
		return w.link.fault
	}
	return nil
}

// await blocks until the event has happened, or the step is over.
func (e *Endpoint[T]) await(ctx context.Context, w wait[T]) error {
	if err := e.endCause(&w); err != nil || e.happened(&w) {
		return err
	}
	w.since = time.Now()
	e.wait = w
	defer e.endWait()
	if err := e.waiter.Sleep(ctx, func() bool { return e.endCause(&w) != nil || e.happened(&w) }); err != nil {
		return err
	}
	return e.endCause(&w)
}

// endWait ends a wait and counts its time.
func (e *Endpoint[T]) endWait() {
	if e.wait.reason != waitBegin {
		took := time.Since(e.wait.since)
		if e.waited += took; e.wait.peer >= 0 {
			e.waits[e.wait.peer] += took
		}
	}
	e.wait = wait[T]{}
}

// postToHub posts a frame to the hub, without the lock.
func (e *Endpoint[T]) postToHub(f frame) {
	e.mu.Unlock()
	defer e.mu.Lock()
	e.toHub(f)
}

// verdict waits briefly for the reason why a connection has ended, which arrives on another
// one.
func (e *Endpoint[T]) verdict(err error, w wait[T]) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(e.cfg.Silence, 2*time.Second))
	defer cancel()
	w.reason, w.link = waitVerdict, nil
	if verdict := e.await(ctx, w); e.jobError != nil || e.cause != nil {
		return verdict
	}
	return err
}

// Capacity returns Config.Capacity.
func (e *Endpoint[T]) Capacity() int { return e.cfg.Capacity }

// Runs notes the step and the action that the rank runs.
func (e *Endpoint[T]) Runs(step int64, action schedule.Action) {
	e.step.Store(step)
	e.last.Store(e.running.Load())
	e.running.Store(uint64(action))
	e.position.Add(1)
}

// Waited returns how long calls of this rank have blocked since Begin.
func (e *Endpoint[T]) Waited() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waited
}

// Waits returns how long calls of this rank have blocked since Join, by the awaited rank.
func (e *Endpoint[T]) Waits() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.waits)
}

// Context returns a context that also ends with the job, so that a long computation ends after a
// rank is lost.
func (e *Endpoint[T]) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(e.jobContext, func() { cancel(context.Cause(e.jobContext)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Standing returns the rank's step, its current and last action, and its wait, if it has one.
func (e *Endpoint[T]) Standing() transport.Standing {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := transport.Standing{Step: e.step.Load(), Last: schedule.Action(e.last.Load()).WithDrop(0).WithJoin(false), Read: e.read.Load()}
	s.Rank, s.Action, s.Position = e.cfg.Rank, schedule.Action(e.running.Load()).WithDrop(0).WithJoin(false), e.position.Load()
	w := &e.wait
	if s.Waits = w.reason != waitNone; !s.Waits {
		if w := e.windows.Waiting(); w != nil { // beside the rank's own goroutine
			s.Waits, s.ForRank, s.For, s.Since = true, w.From, w.Tag.Sends(), time.Since(w.Since)
		}
		return s
	}
	s.For, s.ForRank, s.Since = w.action, w.peer, time.Since(w.since)
	return s
}

// Standings returns the standings of all ranks on rank 0, as of their last heartbeats, and only this
// rank's standing on other ranks. Ranks that have not sent a heartbeat yet are omitted.
func (e *Endpoint[T]) Standings() []transport.Standing {
	all := []transport.Standing{e.Standing()}
	if e.hub == nil {
		return all
	}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	for rank, s := range e.hub.standings[1:] {
		if s.Rank >= 0 {
			s.Age = time.Since(e.hub.lastBeat[rank+1])
			all = append(all, s)
		}
	}
	return all
}

// Begin waits for all ranks. Rank 0 compares their hellos.
func (e *Endpoint[T]) Begin(ctx context.Context, hello []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobError != nil {
		return e.jobError
	}
	if len(hello) > transport.MostHello {
		return fmt.Errorf("tcp: a hello of %d bytes: at most %d", len(hello), transport.MostHello)
	}
	epoch := e.epoch
	e.withdrawn, e.helloError = false, nil
	e.postToHub(frame{kind: begin, data: slices.Clone(hello)})
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

// Send lends h to the goroutine of the link. Under rendezvous it waits for the receipt.
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
	default: // the writer has not seen the last one yet
	}
	if e.cfg.Capacity != 0 {
		return nil
	}
	w.reason, w.number = waitReceipt, w.link.Sent
	return e.linkError(e.await(ctx, w), w)
}

// Wait waits for the receipt of a message.
func (e *Endpoint[T]) Wait(ctx context.Context, to int, tag transport.Tag) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wait[T]{reason: waitReceipt, tag: tag, action: tag.Receives(), peer: to}
	if err := e.checkLink(&w); err != nil {
		return err
	}
	if w.link = e.outs[direction{to, tag.Backward()}]; w.link == nil {
		return nil // nothing was sent
	}
	w.number = w.link.Number(tag)
	return e.linkError(e.await(ctx, w), w)
}

// linkError returns the error of a link, or the step's error if the step is over.
func (e *Endpoint[T]) linkError(err error, w wait[T]) error {
	if err == nil || w.link.fault != err {
		return err
	}
	if _, mismatch := err.(*transport.TagError); mismatch {
		return err
	}
	return e.verdict(err, w)
}

// checkLink returns an error if the link of a wait cannot be used.
func (e *Endpoint[T]) checkLink(w *wait[T]) error {
	if err := e.endCause(w); err != nil {
		return err
	}
	if w.peer < 0 || w.peer >= e.cfg.Ranks || w.peer == e.cfg.Rank {
		return fmt.Errorf("tcp: no link between rank %d and rank %d of %d", e.cfg.Rank, w.peer, e.cfg.Ranks)
	}
	return nil
}

// link returns the link to a rank, and dials it if it is new.
func (e *Endpoint[T]) link(ctx context.Context, w wait[T]) (*out[T], error) {
	if err := e.checkLink(&w); err != nil {
		return nil, err
	}
	d := direction{w.peer, w.tag.Backward()}
	if l := e.outs[d]; l != nil {
		return l, nil
	}
	dialing, cancel := context.WithTimeout(ctx, min(e.cfg.Silence, handshake))
	defer cancel()
	e.dialing = cancel
	epoch := e.epoch
	e.mu.Unlock()
	conn, err := e.cfg.dialLink(dialing, e.addresses[w.peer], purposeLink, opening{e.cfg.Rank, w.tag.Backward(), epoch})
	e.mu.Lock()
	e.dialing = nil
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, e.verdict(fmt.Errorf("tcp: rank %d connects to rank %d: %w", e.cfg.Rank, w.peer, err), w)
	}
	if err := e.endCause(&w); err != nil {
		closeNow(conn) // the step is over
		return nil, err
	}
	l := &out[T]{to: w.peer, conn: conn, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	e.outs[d] = l
	e.writers.Go(func() { e.write(l) })
	e.readers.Go(func() { e.confirmations(l) })
	return l, nil
}

// Recv reads the next message of the link into buffers of the rank's space.
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
	k := e.ins[direction{from, tag.Backward()}]
	if e.watch(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.reason, w.since = waitMessage, time.Now()
	e.wait, e.reading = w, k.conn
	e.mu.Unlock()
	err := receive(k, e.codec, from, e.cfg.Rank, tag, h)
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
	return e.verdict(err, w)
}

// watch ends the current Recv when the context ends. Most calls of a step have the same context.
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

// Exchange waits for all ranks. A rank that wants to leave asks rank 0, which may already have
// the bytes of all ranks.
func (e *Endpoint[T]) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wait[T]{reason: waitAll, peer: -1}
	if len(mine) > mostExchange {
		return nil, fmt.Errorf("tcp: an exchange of %d bytes: at most %d", len(mine), mostExchange)
	}
	e.all = nil
	if err := e.endCause(&w); err != nil {
		return nil, err
	}
	e.postToHub(frame{exchange, e.epoch, append([]byte{}, mine...)})
	err := e.await(ctx, w)
	if err != nil && e.cause == nil && e.jobError == nil {
		e.proposal = err
		e.postToHub(frame{abort, e.epoch, encodeCause(err)})
		err = e.await(context.Background(), w)
	}
	all := e.all
	e.all = nil
	return all, err
}

// Abort ends the step on all ranks. It waits for rank 0, which determines the first cause.
func (e *Endpoint[T]) Abort(cause error) {
	e.mu.Lock()
	if e.cause == nil && e.jobError == nil {
		e.proposal = cause
		e.postToHub(frame{abort, e.epoch, encodeCause(cause)})
		_ = e.await(context.Background(), wait[T]{reason: waitVerdict, peer: -1}) // the error is the verdict
	}
	e.closeLinks()
	e.mu.Unlock()
	e.writers.Wait()
	e.windows.Drain(context.Background())
}

// Close leaves the job. The other ranks can begin no further step.
func (e *Endpoint[T]) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.endJob(runner.ErrClosed)
	if e.unwatch != nil {
		e.unwatch()
	}
	e.mu.Unlock()
	err := e.acceptor.close()
	if e.hub != nil {
		e.hub.mu.Lock()
		e.hub.lost = true // ranks that leave now are not lost
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
	return err
}
