package local

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/internal/engine/turns"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/internal/messages"
)

// Config configures the links between the ranks of one process. Ranks and, for more than one
// rank, Copy must be set.
type Config[T any] struct {
	Ranks int
	// Capacity is the number of messages that a link can hold: 0 means a rendezvous, and
	// schedule.Unlimited means no limit.
	Capacity int
	// Copy returns a copy of h, a handle of rank from. The copy is in rank to's own space, in a
	// buffer of class Transfer. Copy runs on rank to's goroutine. Rank from continues to run, but
	// does not change or release h.
	Copy func(from, to int, h T) (T, error)
	// Sum returns the checksum of h, a handle of a rank. If Sum is set, every copy of a handle or of a range of
	// exposed memory is compared with its original; a difference is an error that wraps transport.ErrSum.
	Sum func(rank int, h T) (uint32, error)
	// Stall is the time after which a step ends with a *transport.StallError, if a rank waits and no
	// rank begins an action, moves a message or reads exposed memory: 0 means five minutes, and a
	// negative value no limit. A deadlock always ends the step immediately.
	Stall time.Duration
}

// ErrNoCopy is returned if Config.Copy returns a handle of the sending rank.
var ErrNoCopy = errors.New("local: a handle crosses ranks")

const defaultStall = 5 * time.Minute

// Validate reports every fault of the configuration.
func (c *Config[T]) Validate() error {
	var faults []error
	if c.Ranks < 1 {
		faults = append(faults, fmt.Errorf("local: links of %d ranks", c.Ranks))
	}
	if c.Capacity < schedule.Unlimited {
		faults = append(faults, fmt.Errorf("local: a link of capacity %d", c.Capacity))
	}
	if c.Copy == nil && c.Ranks > 1 {
		faults = append(faults, errors.New("local: links without Copy: set Topology.Copy to a function that copies a handle of one rank into a buffer of another's space"))
	}
	return errors.Join(faults...)
}

// Links are the links between the ranks of one process. The receiver's goroutine copies from the
// sender's buffer, so a message costs one copy and, in steady state, no allocation. The only
// goroutine that Links start is that of a timer that checks for stalls.
//
// One lock guards all state. A call that must wait records the reason in its rank's wait, and sleeps;
// the rank that causes the awaited event wakes it. The recorded waits thus always form the graph of
// waiting ranks, and a cycle is found as soon as it closes.
type Links[T any] struct {
	cfg        Config[T]
	ends       []Endpoint[T]
	comparable bool // whether handles are comparable

	mu      sync.Mutex
	closed  bool
	links   []*link[T] // by sender, receiver and direction; nil before the first message
	cause   error      // the cause of the abort; nil while the step runs
	done    bool       // an Exchange of the step has succeeded
	steps   int64      // the number of steps that have begun
	begun   int        // the number of ranks that wait in Begin
	hellos  [][]byte   // by rank: the hello of its last Begin
	arrived int        // the number of ranks that have called the current Exchange
	all     [][]byte   // by rank: its bytes in the current Exchange
	watch   watch
}

// link holds the messages of one link.
type link[T any] struct {
	messages.Queue[T]
	from, to int
	received int64 // number of messages received since Begin
	reading  bool  // the receiver is copying the first message
	fault    error
}

// Endpoint is one rank's end of Links: a transport.Transport, a transport.Watcher and a
// transport.Windows.
type Endpoint[T any] struct {
	links      *Links[T]
	windows    messages.Windows
	rank       int
	step       atomic.Int64
	lastAction atomic.Uint64 // the previous action
	action     atomic.Uint64 // the current action
	position   atomic.Int64  // the current action's position, for errors

	// Guarded by links.mu.
	waiter     messages.Waiter
	wait       wait[T]
	waited     time.Duration
	exchanged  [][]byte // result of Exchange
	helloError error    // error of Begin if the hellos differ
}

// wait describes the event for which a rank waits.
type wait[T any] struct {
	reason waitReason
	tag    transport.Tag
	link   *link[T]
	number int64 // the number of the message or step
	since  time.Time
}

// waitReason is the kind of the awaited event.
type waitReason uint8

const (
	waitNone    waitReason = iota
	waitBegin              // for all ranks to begin the step
	waitRoom               // in Send, for room on the link
	waitReceipt            // in Wait, or in Send with capacity 0, for the receipt of a message
	waitMessage            // in Recv, for a message
	waitAll                // in Exchange, for all ranks
	waitRelease            // in Abort, for all copies of the rank's buffers to end
)

// New returns links without messages.
func New[T any](cfg Config[T]) (*Links[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Stall == 0 {
		cfg.Stall = defaultStall
	}
	l := &Links[T]{comparable: reflect.TypeFor[T]().Comparable(), cfg: cfg, ends: make([]Endpoint[T], cfg.Ranks), hellos: make([][]byte, cfg.Ranks), links: make([]*link[T], 2*cfg.Ranks*cfg.Ranks)}
	for rank := range l.ends {
		e := &l.ends[rank]
		e.links, e.rank, e.waiter = l, rank, messages.NewWaiter(&l.mu)
	}
	return l, nil
}

// Rank returns the endpoint of a rank, for Topology.Transport.
func (l *Links[T]) Rank(rank int) *Endpoint[T] { return &l.ends[rank] }

// Close closes the links. No rank may be in a call.
func (l *Links[T]) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.abort(transport.ErrClosed)
	if l.watch.timer != nil {
		l.watch.timer.Stop()
	}
	return nil
}

// Capacity returns Config.Capacity.
func (e *Endpoint[T]) Capacity() int { return e.links.cfg.Capacity }

// Runs records the step and the action that the rank runs.
func (e *Endpoint[T]) Runs(step int64, action schedule.Action) {
	e.step.Store(step)
	e.lastAction.Store(e.action.Load())
	e.action.Store(uint64(action))
	e.position.Add(1)
}

// Waited returns the time that this rank's calls have spent blocked since Begin.
func (e *Endpoint[T]) Waited() time.Duration {
	e.links.mu.Lock()
	defer e.links.mu.Unlock()
	return e.waited
}

// Begin waits for all ranks. The last rank to arrive compares the hellos and empties the links.
func (e *Endpoint[T]) Begin(ctx context.Context, hello []byte) error {
	turn := turns.Of(ctx)
	if turn != nil {
		turn.Begin(e.rank)
	}
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	e.waiter.Turns = turn
	if l.closed {
		return transport.ErrClosed
	}
	l.hellos[e.rank], e.helloError = append(l.hellos[e.rank][:0], hello...), nil
	if l.begun++; l.begun < len(l.ends) {
		if err := l.await(ctx, e, wait[T]{reason: waitBegin, number: l.steps + 1}); err != nil {
			if e.helloError == nil {
				l.begun--
			}
			return err
		}
		return nil
	}
	l.begun = 0
	defer l.wakeAll()
	if err := transport.SameHello(l.hellos); err != nil {
		for rank := range l.ends {
			l.ends[rank].helloError = err
		}
		return err
	}
	l.steps++
	l.cause, l.done, l.arrived, l.all = nil, false, 0, nil
	for _, link := range l.links {
		if link != nil {
			link.Reset()
			link.received, link.fault = 0, nil
		}
	}
	for rank := range l.ends {
		other := &l.ends[rank]
		other.windows.Begin(l.steps)
		other.waited, other.exchanged = 0, nil
		other.action.Store(0)
		other.position.Store(-1)
	}
	return nil
}

// Send waits for room on the link and puts h on it. If the capacity is 0, it then waits until h has
// been received.
func (e *Endpoint[T]) Send(ctx context.Context, to int, tag transport.Tag, h []T) error {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	link, err := l.link(e.rank, to, tag)
	if err != nil {
		return err
	}
	if err := l.await(ctx, e, wait[T]{reason: waitRoom, tag: tag, link: link}); err != nil {
		return err
	}
	link.Push(tag, h)
	l.watch.moves++
	l.wake(to)
	if l.cfg.Capacity != 0 {
		return nil
	}
	return l.await(ctx, e, wait[T]{reason: waitReceipt, tag: tag, link: link, number: link.Sent})
}

// Wait waits until the message with the tag has been received.
func (e *Endpoint[T]) Wait(ctx context.Context, to int, tag transport.Tag) error {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	link, err := l.link(e.rank, to, tag)
	if err != nil {
		return err
	}
	return l.await(ctx, e, wait[T]{reason: waitReceipt, tag: tag, link: link, number: link.Number(tag)})
}

// Recv waits for the first message on the link and copies its tensors.
func (e *Endpoint[T]) Recv(ctx context.Context, from int, tag transport.Tag, h []T) error {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	link, err := l.link(from, e.rank, tag)
	if err != nil {
		return err
	}
	if err := l.await(ctx, e, wait[T]{reason: waitMessage, tag: tag, link: link}); err != nil {
		return err
	}
	m := link.First()
	if m.Tag != tag || len(m.H) != len(h) {
		link.fault = &transport.TagError{From: from, To: e.rank, Sent: m.Tag, Expected: tag, Tensors: len(m.H), ExpectedOf: len(h)}
		l.wake(from)
		return link.fault
	}
	if err := e.copy(link, m.H, h); err != nil {
		return fmt.Errorf("local: copying %v from rank %d: %w", tag, from, err)
	}
	link.Pop()
	link.received++
	l.watch.moves++
	l.wake(from)
	return nil
}

// copy fills to with copies of the handles in a link's first message. It copies without holding the
// lock: meanwhile the message stays first, and its sender's Abort does not return.
func (e *Endpoint[T]) copy(link *link[T], lent, to []T) (err error) {
	l := e.links
	link.reading = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		link.reading = false
		l.wake(link.from)
	}()
	for i, h := range lent {
		sum := uint32(0)
		if l.cfg.Sum != nil {
			if sum, err = l.cfg.Sum(link.from, h); err != nil {
				return err
			}
		}
		if to[i], err = l.cfg.Copy(link.from, e.rank, h); err != nil {
			return err
		}
		if l.comparable && any(to[i]) == any(h) && any(h) != any(*new(T)) {
			to[i] = *new(T) // the handle belongs to the sender
			return fmt.Errorf("%w: Topology.Copy returned the handle of rank %d: return a copy, of class Transfer, in the space of rank %d", ErrNoCopy, link.from, e.rank)
		}
		if l.cfg.Sum != nil {
			made, err := l.cfg.Sum(e.rank, to[i])
			if err == nil {
				err = transport.Compare(made, sum)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Exchange waits for all ranks. When the last rank has called it, all ranks receive the result. If the
// step is aborted first, or its context ends before the step is done, this rank's bytes are removed,
// so that no rank receives a result.
func (e *Endpoint[T]) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return nil, l.cause
	}
	if l.done {
		ctx = context.WithoutCancel(ctx)
	}
	if l.all == nil {
		l.all = make([][]byte, len(l.ends))
	}
	l.all[e.rank] = append([]byte{}, mine...)
	if l.arrived++; l.arrived == len(l.ends) {
		for rank := range l.ends {
			l.ends[rank].exchanged = l.all
		}
		l.arrived, l.all, l.done = 0, nil, true
		l.wakeAll()
	}
	err := l.await(ctx, e, wait[T]{reason: waitAll})
	all := e.exchanged
	if all == nil { // the other ranks get no result either
		if l.all != nil {
			l.arrived, l.all[e.rank] = l.arrived-1, nil
		}
		return nil, err
	}
	e.exchanged = nil
	return all, nil
}

// Abort ends the step, waits until no other rank reads this rank's buffers or exposed memory, and
// removes this rank's messages.
func (e *Endpoint[T]) Abort(cause error) {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abort(cause)
	_ = l.await(context.Background(), e, wait[T]{reason: waitRelease}) // nothing can end this wait early
	ctx := turns.With(context.Background(), e.waiter.Turns)
	l.mu.Unlock()
	e.windows.Drain(ctx)
	l.mu.Lock()
	for _, link := range l.links {
		if link != nil && link.from == e.rank {
			link.Reset()
		}
	}
}

// Failure returns the cause of the current step's abort, or nil if there was none.
func (l *Links[T]) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// abort ends every call with the first cause, except calls of Begin and Abort.
func (l *Links[T]) abort(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	for rank := range l.ends {
		l.ends[rank].windows.End(cause)
	}
	l.wakeAll()
}

// link returns the link of a tag between two ranks. It fails after an abort, with the cause, or if
// there is no such link.
func (l *Links[T]) link(from, to int, tag transport.Tag) (*link[T], error) {
	if l.cause != nil {
		return nil, l.cause
	}
	if from < 0 || to < 0 || from >= len(l.ends) || to >= len(l.ends) || from == to {
		return nil, fmt.Errorf("local: no link from rank %d to rank %d of %d", from, to, len(l.ends))
	}
	i := 2 * (from*len(l.ends) + to)
	if tag.Backward() {
		i++
	}
	if l.links[i] == nil {
		l.links[i] = &link[T]{from: from, to: to}
	}
	return l.links[i], nil
}
