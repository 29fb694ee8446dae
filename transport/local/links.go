package local

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/internal/turns"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// Config says how the ranks of one process are linked. Ranks and, for more than
// one, Copy must be set.
type Config[T any] struct {
	Ranks int
	// Capacity is how many messages a link holds: 0 is a rendezvous,
	// schedule.Unlimited no bound.
	Capacity int
	// Copy returns a copy of h, a handle of rank from, in a buffer of class Transfer
	// of rank to's own space. It runs on the goroutine of rank to, while that of rank
	// from may do anything but change or end h.
	Copy func(from, to int, h T) (T, error)
	// Stall is how long a rank may wait while none of them begins an action, before
	// the step ends with a *transport.StallError. 0 is five minutes; where it is negative only
	// ranks that can never go on end the step, which they do at once.
	Stall time.Duration
}

var (
	// ErrClosed is returned by links after Close.
	ErrClosed = errors.New("local: closed")
	// ErrNoCopy is returned if Config.Copy returns a handle of the sending rank.
	ErrNoCopy = errors.New("local: a handle crosses ranks")
)

const defaultStall = 5 * time.Minute

// Validate reports every fault.
func (c *Config[T]) Validate() error {
	var faults []error
	if c.Ranks < 1 {
		faults = append(faults, fmt.Errorf("local: links of %d ranks", c.Ranks))
	}
	if c.Capacity < schedule.Unlimited {
		faults = append(faults, fmt.Errorf("local: a link of capacity %d", c.Capacity))
	}
	if c.Copy == nil && c.Ranks > 1 {
		faults = append(faults, errors.New("local: links without Copy: set World.Copy to what copies a handle of one rank into a buffer of another's space"))
	}
	return errors.Join(faults...)
}

// Links are the links between the ranks of one process. The receiver's goroutine
// copies from the sender's buffer when it receives, so a message costs one copy and,
// in steady state, no allocation. Nothing here runs on a goroutine of its own but
// the watch for stalls, now and then and for a moment.
//
// All state is under one lock. A call that must wait says for what, in its rank's
// wait, and sleeps; whoever makes that come true clears the wait and wakes it. So at
// any time the waits say who waits for whom, and a cycle is seen when it closes.
type Links[T any] struct {
	cfg        Config[T]
	ends       []Endpoint[T]
	comparable bool // handles are

	mu      sync.Mutex
	closed  bool
	links   []*link[T] // by sending rank, receiving rank and direction; nil before its first message
	cause   error      // of the abort; nil while the step goes on
	begun   int        // ranks that wait in Begin
	hellos  [][]byte   // of those, by rank
	arrived int        // ranks that have come to Exchange
	all     [][]byte   // what they have brought
	watch   watch
}

// link is one link: a ring of messages, the oldest first.
type link[T any] struct {
	from, to     int
	ring         []message[T]
	first, count int
	sent         int64 // messages since Begin
	received     int64
	waits        []sending // in the order of sending; from waited on those that the sender has not waited for
	waited       int
	reading      bool // the receiver copies the first message
	fault        error
}

// sending is the number of a message, from 1, by its tag.
type sending struct {
	tag    transport.Tag
	number int64
}

// message is the handles that the sender has lent.
type message[T any] struct {
	tag transport.Tag
	h   []T
}

// Endpoint is one rank's end of Links: a transport.Transport and a transport.Watcher.
type Endpoint[T any] struct {
	links    *Links[T]
	rank     int
	running  atomic.Uint64 // the action under way
	position int64         // of it, for whoever finds the rank waiting
	wake     chan struct{}
	turns    turns.Turns // nil outside of a simulation

	// Under the lock.
	wait   wait[T]
	waited time.Duration
	all    [][]byte // what Exchange is to return
	differ error    // what Begin is to return
}

// wait is what a rank waits for.
type wait[T any] struct {
	sort   sort
	tag    transport.Tag
	link   *link[T]
	number int64 // of the message
	since  time.Time
}

type sort uint8

const (
	nothing    sort = iota
	toBegin         // that all ranks begin the step
	forRoom         // of a Send, that the link takes another message
	forTaker        // of a Send under rendezvous, that its message is received
	forReceipt      // of a Wait, that the message of this number is received
	forMessage      // of a Recv, that there is one
	forAll          // of an Exchange
	forReaders      // of an Abort, that nobody reads the rank's buffers
)

// New returns links that hold no message.
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
		e.links, e.rank, e.wake = l, rank, make(chan struct{}, 1)
	}
	return l, nil
}

// Rank returns the end of a rank, for World.Transport.
func (l *Links[T]) Rank(rank int) *Endpoint[T] { return &l.ends[rank] }

// Close ends the links. No rank may be in a call.
func (l *Links[T]) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.cause == nil {
		l.cause = ErrClosed
	}
	if l.watch.timer != nil {
		l.watch.timer.Stop()
	}
	return nil
}

// Capacity returns Config.Capacity.
func (e *Endpoint[T]) Capacity() int { return e.links.cfg.Capacity }

// Runs notes the action that the rank runs.
func (e *Endpoint[T]) Runs(_ int64, action schedule.Action) {
	e.running.Store(uint64(action))
	e.position++
}

// Waited returns for how long calls of this rank have blocked since Begin.
func (e *Endpoint[T]) Waited() time.Duration {
	e.links.mu.Lock()
	defer e.links.mu.Unlock()
	return e.waited
}

// Begin waits for all ranks. The last one to come compares what they say, and empties the links.
func (e *Endpoint[T]) Begin(ctx context.Context, hello []byte) error {
	turn := turns.Of(ctx)
	if turn != nil {
		turn.Begin(e.rank)
	}
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	e.turns = turn
	if l.closed {
		return ErrClosed
	}
	l.hellos[e.rank], e.differ = append(l.hellos[e.rank][:0], hello...), nil
	if l.begun++; l.begun < len(l.ends) {
		if err := l.block(ctx, e, wait[T]{sort: toBegin}); err != nil {
			l.begun--
			return err
		}
		return e.differ
	}
	l.begun = 0
	if err := transport.SameHello(l.hellos); err != nil {
		for rank := range l.ends {
			if other := &l.ends[rank]; other.wait.sort == toBegin {
				other.differ = err
				l.goOn(other)
			}
		}
		return err
	}
	l.cause, l.arrived, l.all = nil, 0, nil
	for _, link := range l.links {
		if link != nil {
			link.empty()
			link.sent, link.received, link.fault = 0, 0, nil
			link.waits, link.waited = link.waits[:0], 0
		}
	}
	for rank := range l.ends {
		other := &l.ends[rank]
		other.waited, other.all = 0, nil
		other.running.Store(0)
		other.position = -1
		if other.wait.sort == toBegin {
			l.goOn(other)
		}
	}
	return nil
}

// Send puts h on the link. Under rendezvous it waits for the receipt.
func (e *Endpoint[T]) Send(ctx context.Context, to int, tag transport.Tag, h []T) error {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	link, err := l.link(e.rank, to, tag)
	if err != nil {
		return err
	}
	if err := l.await(ctx, e, wait[T]{sort: forRoom, tag: tag, link: link}); err != nil {
		return err
	}
	link.push(tag, h)
	l.watch.moves++
	l.poke(to)
	if l.cfg.Capacity != 0 {
		return nil
	}
	return l.await(ctx, e, wait[T]{sort: forTaker, tag: tag, link: link, number: link.sent})
}

// Wait waits for the receipt of a message.
func (e *Endpoint[T]) Wait(ctx context.Context, to int, tag transport.Tag) error {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	link, err := l.link(e.rank, to, tag)
	if err != nil {
		return err
	}
	return l.await(ctx, e, wait[T]{sort: forReceipt, tag: tag, link: link, number: link.take(tag)})
}

// Recv copies the first message of the link.
func (e *Endpoint[T]) Recv(ctx context.Context, from int, tag transport.Tag, h []T) error {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	link, err := l.link(from, e.rank, tag)
	if err != nil {
		return err
	}
	if err := l.await(ctx, e, wait[T]{sort: forMessage, tag: tag, link: link}); err != nil {
		return err
	}
	m := &link.ring[link.first]
	if m.tag != tag || len(m.h) != len(h) {
		link.fault = &transport.TagError{From: from, To: e.rank, Sent: m.tag, Expected: tag, Tensors: len(m.h), ExpectedOf: len(h)}
		l.poke(from)
		return link.fault
	}
	if err := e.copy(link, m.h, h); err != nil {
		return fmt.Errorf("local: copying %v from rank %d: %w", tag, from, err)
	}
	link.pop()
	l.watch.moves++
	l.poke(from)
	return nil
}

// copy fills to with copies of what a link's first message has lent, without the
// lock: the message stays the first one, and its sender does not end the step, until
// it is done.
func (e *Endpoint[T]) copy(link *link[T], lent, to []T) (err error) {
	l := e.links
	link.reading = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		link.reading = false
		l.poke(link.from)
	}()
	for i, h := range lent {
		if to[i], err = l.cfg.Copy(link.from, e.rank, h); err != nil {
			return err
		}
		if l.comparable && any(to[i]) == any(h) && any(h) != any(*new(T)) {
			to[i] = *new(T) // it is the sender's
			return fmt.Errorf("%w: World.Copy returned the handle of rank %d: return a copy, of class Transfer, in the space of rank %d", ErrNoCopy, link.from, e.rank)
		}
	}
	return nil
}

// Exchange waits for all ranks. Once the last one has come nothing can take the
// result away.
func (e *Endpoint[T]) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return nil, l.cause
	}
	if l.all == nil {
		l.all = make([][]byte, len(l.ends))
	}
	l.all[e.rank] = append([]byte{}, mine...)
	if l.arrived++; l.arrived == len(l.ends) {
		for rank := range l.ends {
			l.ends[rank].all = l.all
		}
		l.arrived, l.all = 0, nil
		l.pokeAll()
	}
	err := l.await(ctx, e, wait[T]{sort: forAll})
	all := e.all
	if all == nil { // then the others do not get it either
		if l.all != nil {
			l.arrived, l.all[e.rank] = l.arrived-1, nil
		}
		return nil, err
	}
	e.all = nil
	return all, nil
}

// Abort ends the step, and forgets what this rank has sent.
func (e *Endpoint[T]) Abort(cause error) {
	l := e.links
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abort(cause)
	_ = l.block(context.Background(), e, wait[T]{sort: forReaders})
	for _, link := range l.links {
		if link != nil && link.from == e.rank {
			link.empty()
		}
	}
}

// Failure returns the cause of the abort, nil if there was none.
func (l *Links[T]) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// abort makes the first cause end every call but those that wait for a new step.
func (l *Links[T]) abort(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	l.pokeAll()
}

// link returns the link of a tag between two ranks, or why the step is over.
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

// push adds a message. The ring grows to as many messages as ever were on the link
// at once.
func (k *link[T]) push(tag transport.Tag, h []T) {
	if k.count == len(k.ring) {
		ring := make([]message[T], max(2*len(k.ring), 1))
		for i := range k.count {
			ring[i] = k.ring[(k.first+i)%len(k.ring)]
		}
		k.ring, k.first = ring, 0
	}
	m := &k.ring[(k.first+k.count)%len(k.ring)]
	m.tag, m.h = tag, append(m.h[:0], h...)
	k.count++
	k.sent++
	if k.waited > 0 && len(k.waits) == cap(k.waits) {
		k.waits, k.waited = k.waits[:copy(k.waits, k.waits[k.waited:])], 0
	}
	k.waits = append(k.waits, sending{tag, k.sent})
}

// pop takes the first message away.
func (k *link[T]) pop() {
	clear(k.ring[k.first].h)
	k.first = (k.first + 1) % len(k.ring)
	k.count--
	k.received++
}

// empty takes all messages away.
func (k *link[T]) empty() {
	for range k.count {
		k.pop()
	}
}

// take returns the number of the message under a tag that the sender has not waited
// for yet; 0 where there is none. Waits mostly come in the order of sending.
func (k *link[T]) take(tag transport.Tag) int64 {
	for i := k.waited; i < len(k.waits); i++ {
		if k.waits[i].tag == tag {
			number := k.waits[i].number
			copy(k.waits[k.waited+1:i+1], k.waits[k.waited:i])
			k.waited++
			return number
		}
	}
	return 0
}
