//go:build mpi

package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/weir-ml/weir/transport/tcp"
)

const (
	// Buffer is the maximum number of bytes that a Write copies so that it can return immediately.
	Buffer = 64 << 10
	// Chunk is the maximum length of a message, in bytes.
	Chunk = 1 << 20
	// Drain is the time in which the other side must receive pending messages after the end of a
	// connection.
	Drain = 5 * time.Second
)

// Config defines how a process waits for MPI after the last event. For the duration Spin it polls without
// pausing; 0 means 20 us. Then, for the duration Yield, it lets other threads run between polls; 0 means 200
// us. After that it sleeps for Sleep between polls; 0 means 1 ms. A negative duration skips the phase. Finish
// is how long Close waits for the other processes to close their connections; 0 means five minutes. Close then
// waits a tenth of Finish for MPI to end.
type Config struct{ Spin, Yield, Sleep, Finish time.Duration }

// World is this process's part of MPI_COMM_WORLD: a [tcp.Network] whose addresses have the form
// mpi:PROCESS:PORT. The port can be any number.
type World struct {
	process, processes int
	library            string
	cfg                Config
	finalize, ended    chan error
	wakeup             chan struct{} // wakes poll from its sleep
	failed             chan struct{} // closed when err is set
	poller             sync.WaitGroup

	mu         sync.Mutex // guards every call of MPI, and the fields below
	mpi        binding
	operations []*operation // one for each of mpi.requests
	conns      map[key]*conn
	listeners  map[int]*listener
	next       int // the number of the connection dialed last
	port       int // the next free port
	changed    sync.Cond
	closed     bool
	err        error // the reason why the World has failed, or nil
}

var _ tcp.Network = (*World)(nil)

// key identifies a connection: the other process, and the tag of the messages from it. The tag is
// even if the other process dialed the connection, and odd if this process did.
type key struct{ process, tag int }

// operation is a send or receive that was started in MPI; done is set when MPI has completed it.
type operation struct {
	conn *conn  // the connection that waits for the operation; nil if the message is discarded
	data []byte // the memory that MPI reads or writes
	pin  runtime.Pinner
	done bool
}

// Start starts MPI in this process. It blocks until all processes of the job have called it. If ctx ends first,
// Start returns without stopping MPI, and the process should exit. A process can start only one World.
func Start(ctx context.Context, cfg Config) (*World, error) {
	if ctx == nil {
		return nil, errors.New("mpi: the context of Start is nil: pass context.Background() if there is no other")
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&cfg.Spin, 20 * time.Microsecond}, {&cfg.Yield, 200 * time.Microsecond}, {&cfg.Sleep, time.Millisecond}, {&cfg.Finish, 5 * time.Minute}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	w := &World{cfg: cfg, finalize: make(chan error), ended: make(chan error, 1), wakeup: make(chan struct{}, 1), failed: make(chan struct{}),
		conns: map[key]*conn{}, listeners: map[int]*listener{}, port: 1 << 20}
	w.changed.L = &w.mu
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.mpi.start()
		started <- err
		if err == nil && <-w.finalize == nil {
			err = w.mpi.end()
		}
		w.ended <- err
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("mpi: not all processes of the job have started MPI: %w", context.Cause(ctx))
	case err := <-started:
		if err != nil {
			return nil, err
		}
	}
	w.process, w.processes, w.library = int(w.mpi.world.process), int(w.mpi.world.processes), library()
	w.poller.Go(w.poll)
	return w, nil
}

// Process returns the index of this process, from 0 on, and the number of processes.
func (w *World) Process() (number, of int) { return w.process, w.processes }

// Library returns the name and version of the MPI library.
func (w *World) Library() string { return w.library }

// Held returns the number of bytes that the connections hold outside the ranks' spaces.
func (w *World) Held() (bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		bytes += int64(cap(c.out) + cap(c.in))
	}
	return bytes
}

// Close closes the connections, waits until the other processes have closed theirs, and ends MPI, which waits
// for them too. If the World has failed, or the others are not done within Config.Finish, Close returns the
// error and stops using MPI. The process should then exit with a status other than 0, so that the launcher ends
// the other processes.
func (w *World) Close() error {
	late := time.AfterFunc(w.cfg.Finish, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		others := "another process"
		for k := range w.conns {
			others = fmt.Sprint("process ", k.process)
		}
		w.fail(fmt.Errorf("mpi: this process has ended its part of the job, and %s has not: it is busy, it has ended without MPI, or its host cannot be reached", others))
	})
	defer late.Stop()
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	for _, l := range w.listeners {
		l.close()
	}
	for _, c := range w.conns {
		c.close()
	}
	for w.err == nil && len(w.conns)+len(w.operations) > 0 {
		w.changed.Wait()
	}
	w.closed = true
	err := w.err
	w.mu.Unlock()
	w.poller.Wait()
	if err != nil {
		return err // keep the thread that started MPI, and the memory that MPI may still read
	}
	late.Reset(w.cfg.Finish / 10)
	w.finalize <- nil
	select {
	case err = <-w.ended:
	case <-w.failed:
		err = w.err
	}
	return err
}

// poll is the goroutine that polls MPI.
func (w *World) poll() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last := time.Now(); ; {
		w.mu.Lock()
		progressed := w.progress()
		ended := w.closed || w.err != nil
		w.mu.Unlock()
		switch idle := time.Since(last); {
		case ended:
			return
		case progressed:
			last = time.Now()
			runtime.Gosched()
		case idle < w.cfg.Spin:
			runtime.Gosched()
		case idle < w.cfg.Spin+w.cfg.Yield:
			runtime.Gosched()
			yield()
		default:
			timer.Reset(max(w.cfg.Sleep, 0))
			select {
			case <-w.wakeup:
				last = time.Now()
			case <-timer.C:
			}
		}
	}
}

// wake wakes poll from its sleep because an operation has started or a Read waits.
func (w *World) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default: // poll has not received the last signal yet
	}
}

// progress polls MPI once, and reports whether anything happened.
func (w *World) progress() bool {
	if w.err != nil {
		return false
	}
	done, a, found, err := w.mpi.poll()
	if err != nil {
		w.fail(err)
		return false
	}
	if len(done) > 0 {
		for _, i := range done {
			o := w.operations[i]
			o.done = true
			o.pin.Unpin()
			if o.conn != nil {
				o.conn.changed.Broadcast()
			}
		}
		n := 0
		for i, o := range w.operations {
			if !o.done {
				w.operations[n], w.mpi.requests[n] = o, w.mpi.requests[i]
				n++
			}
		}
		clear(w.operations[n:])
		w.operations, w.mpi.requests = w.operations[:n], w.mpi.requests[:n]
		w.changed.Broadcast()
	}
	if found {
		w.arrived(a)
	}
	return found || len(done) > 0
}

// arrived handles a message that MPI has matched. The first message on a connection opens it, and
// an empty one ends its direction. Messages for a connection that does not exist or that this side
// has closed are discarded.
func (w *World) arrived(a arrival) {
	c := w.conns[key{a.from, a.tag}]
	switch {
	case c == nil && a.tag%2 == 0: // the first message on a connection is the port
		var port [8]byte
		if a.size != len(port) {
			w.fail(fmt.Errorf("mpi: process %d starts a connection with %d bytes: run the same build everywhere", a.from, a.size))
			return
		}
		if err := w.mpi.receiveNow(port[:], &a); err != nil {
			w.fail(err)
			return
		}
		c = w.newConn(key{a.from, a.tag})
		if l := w.listeners[int(binary.LittleEndian.Uint64(port[:]))]; l != nil {
			l.queue = append(l.queue, c)
			l.changed.Broadcast()
		} else {
			c.close()
		}
	case c == nil || c.closed || a.size == 0:
		w.begin(nil, make([]byte, a.size), func(p []byte) error { return w.mpi.receive(p, &a) })
		if c != nil && a.size == 0 {
			c.ended = true
			c.sweep()
			c.changed.Broadcast()
		}
	default:
		c.queue = append(c.queue, a)
		c.changed.Broadcast()
	}
}

// begin starts an operation on p, which it pins until the operation is done.
func (w *World) begin(c *conn, p []byte, post func(p []byte) error) *operation {
	o := &operation{conn: c, data: p}
	if len(p) > 0 {
		o.pin.Pin(&p[0])
	}
	if err := post(p); err != nil {
		w.fail(err)
	}
	w.operations = append(w.operations, o)
	w.wake()
	return o
}

// fail ends all connections and operations with the first error.
func (w *World) fail(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	close(w.failed)
	for _, c := range w.conns {
		c.changed.Broadcast()
	}
	for _, l := range w.listeners {
		l.changed.Broadcast()
	}
	w.changed.Broadcast()
}

// address is a port of a process. In the addresses of a connection the port is 0.
type address struct{ process, port int }

func (a address) Network() string { return "mpi" }
func (a address) String() string  { return fmt.Sprintf("%d:%d", a.process, a.port) }

// parse parses mpi:PROCESS:PORT.
func (w *World) parse(text string) (a address, err error) {
	if _, err = fmt.Sscanf(text, "mpi:%d:%d", &a.process, &a.port); err != nil || a.process < 0 || a.process >= w.processes || text != "mpi:"+a.String() {
		return a, fmt.Errorf("mpi: address %q: want mpi:PROCESS:PORT with a process below %d", text, w.processes)
	}
	return a, nil
}

// listener listens at a port.
type listener struct {
	world   *World
	at      address
	queue   []*conn
	changed sync.Cond
	closed  bool
}

// Listen listens at a port of this process. If the address is "", it uses a free port, which is at
// least 1<<20.
func (w *World) Listen(text string) (net.Listener, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, err := address{w.process, w.port}, w.err
	if text != "" {
		at, err = w.parse(text)
	} else {
		w.port++
	}
	switch {
	case err != nil:
		return nil, err
	case at.process != w.process:
		return nil, fmt.Errorf("mpi: process %d cannot listen at %s", w.process, text)
	case w.listeners[at.port] != nil:
		return nil, fmt.Errorf("mpi: %v is in use", at)
	}
	l := &listener{world: w, at: at, changed: sync.Cond{L: &w.mu}}
	w.listeners[at.port] = l
	return l, nil
}

// Accept waits for a connection and returns it.
func (l *listener) Accept() (net.Conn, error) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	for len(l.queue) == 0 && !l.closed && l.world.err == nil {
		l.changed.Wait()
	}
	if l.closed || l.world.err != nil {
		return nil, net.ErrClosed
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

// Addr returns the listener's address.
func (l *listener) Addr() net.Addr { return l.at }

// Close closes the listener and the connections that it has not accepted.
func (l *listener) Close() error {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	l.close()
	return nil
}

func (l *listener) close() {
	if l.closed {
		return
	}
	l.closed = true
	delete(l.world.listeners, l.at.port)
	for _, c := range l.queue {
		c.close()
	}
	l.changed.Broadcast()
}

// errFull is returned by Dial if all connection numbers are in use.
var errFull = errors.New("mpi: too many connections between two processes")

// Dial opens a connection. It does not block. If nothing listens at the address, the connection ends.
func (w *World) Dial(_ context.Context, text string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, err := w.parse(text)
	if err = errors.Join(err, w.err); err != nil {
		return nil, err
	}
	numbers := int(w.mpi.world.tags-1) / 2
	for range numbers {
		w.next = (w.next + 1) % numbers
		if k := (key{at.process, 2*w.next + 1}); w.conns[k] == nil {
			c := w.newConn(k)
			c.out = binary.LittleEndian.AppendUint64(c.out, uint64(at.port))
			c.copied = c.send(c.out)
			return c, nil
		}
	}
	return nil, errFull
}
