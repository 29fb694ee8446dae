package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// network connects simulated processes in memory. Data arrives in pieces and with a delay, in order
// on each connection. The network fails as TCP does: a process that dies ends its connections, and
// a disconnected host sends nothing.
type network struct {
	mu      sync.Mutex
	changed *sync.Cond
	random  *rand.Rand
	doors   map[string]*listener
	wires   []*wire
	writes  []int // number of writes, by rank
	silent  []bool
	parted  map[[2]int]bool // pairs of ranks, the lower one first, between which no data passes
	dead    []bool
	fault   func(rank int, w *wire) // called for every write, under the lock
	mark    func(mark, bool)        // also under the lock
	window  int                     // the maximum number of bytes in flight in a direction of a connection
	delays  time.Duration           // the sum of all delays
}

// wire is a connection between two ranks.
type wire struct {
	ends    [2]*end
	late    time.Duration // additional delay of each piece
	greeted bool
	control bool // its greeting marks it as the control connection of a rank
}

func (w *wire) reset() {
	for _, e := range w.ends {
		e.in.reset = true
	}
}

// pipe is one direction of a wire.
type pipe struct {
	pieces []piece
	bytes  int
	last   time.Time
	reset  bool
}

type piece struct {
	at   time.Time
	data []byte // nil means the end
}

func newNetwork(seed uint64, ranks, window int) *network {
	n := &network{window: window, random: rand.New(rand.NewPCG(seed, 3)), doors: map[string]*listener{}, parted: map[[2]int]bool{}, writes: make([]int, ranks), silent: make([]bool, ranks), dead: make([]bool, ranks)}
	n.changed = sync.NewCond(&n.mu)
	return n
}

// delay returns the delay of a piece: mostly short, sometimes long.
func (n *network) delay() time.Duration {
	d := time.Duration(1 + n.random.IntN(1e6))
	if n.random.IntN(32) == 0 {
		d = time.Duration(1 + n.random.IntN(1e9))
	}
	n.delays += d
	return d
}

// heal ends all partitions and stalls of the network. Data that was sent before arrives.
func (n *network) heal() {
	clear(n.silent)
	clear(n.parted)
	for _, w := range n.wires {
		w.late = 0
	}
	n.changed.Broadcast()
}

// kill ends a process and its connections. Data that it has written may be lost.
func (n *network) kill(rank int) {
	n.dead[rank] = true
	for _, w := range n.wires {
		if w.ends[0].rank == rank || w.ends[1].rank == rank {
			w.reset()
		}
	}
	for _, d := range n.doors {
		d.closed = d.closed || d.rank == rank
	}
	n.changed.Broadcast()
}

// address is an address of a network in memory.
type address string

func (a address) Network() string { return "sim" }
func (a address) String() string  { return string(a) }

type listener struct {
	n      *network
	rank   int
	at     address
	queue  []net.Conn
	closed bool
}

// host is the network of a rank: a tcp.Network.
type host struct {
	*network
	rank int
}

func (h host) Listen(string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &listener{n: h.network, rank: h.rank, at: address(fmt.Sprint(h.rank)), closed: h.dead[h.rank]}
	h.doors["sim:"+string(d.at)] = d
	return d, nil
}

func (d *listener) Addr() net.Addr { return d.at }

func (d *listener) Close() error {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	d.closed = true
	d.n.changed.Broadcast()
	return nil
}

func (d *listener) Accept() (net.Conn, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	for len(d.queue) == 0 {
		if d.closed {
			return nil, net.ErrClosed
		}
		d.n.changed.Wait()
	}
	conn := d.queue[0]
	d.queue = d.queue[1:]
	return conn, nil
}

func (h host) Dial(ctx context.Context, at string) (net.Conn, error) {
	n, rank := h.network, h.rank
	n.mu.Lock()
	wait := n.delay()
	n.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.doors[at]
	if d != nil && n.cutOff(rank, d.rank) {
		n.mark(dialsCut, true)
		defer context.AfterFunc(ctx, n.wake)()
		for n.cutOff(rank, d.rank) && ctx.Err() == nil {
			n.changed.Wait()
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case d == nil || d.closed || n.dead[rank]:
		n.mark(dialsDead, d != nil && n.dead[d.rank])
		return nil, syscall.ECONNREFUSED
	}
	there, back := &pipe{}, &pipe{}
	w := &wire{}
	for i, e := range []*end{{rank: rank, in: back, out: there}, {rank: d.rank, in: there, out: back}} {
		e.n, e.wire, e.at = n, w, address(at)
		for j := range e.alarms {
			e.alarms[j] = time.AfterFunc(time.Hour, n.wake)
			e.alarms[j].Stop()
		}
		w.ends[i] = e
	}
	n.wires = append(n.wires, w)
	d.queue = append(d.queue, w.ends[1])
	n.changed.Broadcast()
	return w.ends[0], nil
}

// wake makes all waiting calls check their conditions again.
func (n *network) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed.Broadcast()
}

// end is a net.Conn.
type end struct {
	n      *network
	wire   *wire
	rank   int
	at     address
	in     *pipe
	out    *pipe
	closed bool
	until  [2]time.Time // deadlines of reads and writes
	alarms [2]*time.Timer
}

// over returns the error with which a read (0) or a write (1) on the connection ends now, or nil.
func (e *end) over(call int) error {
	switch {
	case e.closed:
		return net.ErrClosed
	case !e.until[call].IsZero() && !time.Now().Before(e.until[call]):
		return os.ErrDeadlineExceeded
	case e.in.reset:
		return syscall.ECONNRESET
	}
	return nil
}

func (e *end) Read(p []byte) (int, error) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	for {
		if err := e.over(0); err != nil {
			return 0, err
		}
		if len(e.in.pieces) > 0 && !time.Now().Before(e.in.pieces[0].at) && !e.cutOff() {
			first := &e.in.pieces[0]
			if first.data == nil {
				return 0, io.EOF
			}
			k := copy(p, first.data)
			if first.data = first.data[k:]; len(first.data) == 0 {
				e.in.pieces = e.in.pieces[1:]
			}
			e.in.bytes -= k
			e.n.changed.Broadcast()
			return k, nil
		}
		e.n.changed.Wait()
	}
}

// cutOff reports whether no data can pass.
func (e *end) cutOff() bool { return e.n.cutOff(e.wire.ends[0].rank, e.wire.ends[1].rank) }

func (n *network) cutOff(one, other int) bool {
	return n.silent[one] || n.silent[other] || n.parted[[2]int{min(one, other), max(one, other)}]
}

func (e *end) Write(p []byte) (int, error) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if w := e.wire; !w.greeted {
		w.greeted, w.control = true, len(p) > 5 && p[5] == 1
	}
	e.n.writes[e.rank]++
	e.n.fault(e.rank, e.wire)
	for sent := 0; ; {
		if err := e.over(1); err != nil {
			e.n.mark(resetInWrite, sent > 0 && e.in.reset)
			return sent, err
		}
		if other := e.other(); other.closed {
			return sent, syscall.EPIPE
		}
		if sent == len(p) {
			return sent, nil
		}
		if room := e.n.window - e.out.bytes; room > 0 {
			k := 1 + e.n.random.IntN(min(len(p)-sent, room))
			e.send(append([]byte{}, p[sent:sent+k]...))
			sent += k
			continue
		}
		e.n.mark(bothWindowsFull, e.in.bytes >= e.n.window)
		e.n.changed.Wait()
	}
}

func (e *end) other() *end {
	if e.wire.ends[0] == e {
		return e.wire.ends[1]
	}
	return e.wire.ends[0]
}

func (e *end) send(data []byte) {
	e.n.delays += e.wire.late
	at := time.Now().Add(e.n.delay() + e.wire.late)
	if at.Before(e.out.last) {
		at = e.out.last
	}
	e.out.last = at
	e.out.pieces = append(e.out.pieces, piece{at, data})
	e.out.bytes += len(data)
	time.AfterFunc(time.Until(at), e.n.wake)
}

// Close closes the connection. If this end has unread data, the other end loses its unread data too.
func (e *end) Close() error {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	e.closed = true
	for _, alarm := range e.alarms {
		alarm.Stop()
	}
	if len(e.in.pieces) > 0 && e.in.pieces[0].data != nil {
		e.wire.reset()
	}
	e.send(nil)
	e.n.changed.Broadcast()
	return nil
}

func (e *end) LocalAddr() net.Addr  { return e.at }
func (e *end) RemoteAddr() net.Addr { return e.at }

func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}
func (e *end) SetReadDeadline(t time.Time) error  { return e.set(0, t) }
func (e *end) SetWriteDeadline(t time.Time) error { return e.set(1, t) }

func (e *end) set(call int, t time.Time) error {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	if e.until[call] = t; t.IsZero() {
		e.alarms[call].Stop()
	} else {
		e.alarms[call].Reset(max(time.Until(t), 0))
	}
	return nil
}
