//go:build mpi

package mpi

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is a connection: see doc.go. The World's lock guards it.
type conn struct {
	world   *World
	key     key
	changed sync.Cond
	closed  bool // this side has closed the connection
	ended   bool // the other side has ended its direction: no further message arrives

	queue  []arrival  // messages to receive, oldest first
	in     []byte     // a message that did not fit into Read's argument
	rest   []byte     // the unread bytes of in
	out    []byte     // a copy of the last Write of at most Buffer bytes, or the port that Dial sent
	copied *operation // the operation that sends the bytes in out

	readBy, writeBy deadline
}

func (w *World) newConn(k key) *conn {
	c := &conn{world: w, key: k, changed: sync.Cond{L: &w.mu}}
	w.conns[k] = c
	return c
}

// send starts sending bytes.
func (c *conn) send(p []byte) *operation {
	return c.world.begin(c, p, func(p []byte) error { return c.world.mpi.send(p, c.key.process, c.key.tag^1) })
}

// endCause returns the error that ends a call, or nil.
func (c *conn) endCause(by *deadline) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.world.err != nil:
		return c.world.err
	case by.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// finish waits until MPI no longer uses an operation's memory, or the World has failed.
func (c *conn) finish(o *operation) {
	for !o.done && c.world.err == nil {
		c.changed.Wait()
	}
}

// Read waits for bytes to arrive and returns those of at most one message.
func (c *conn) Read(p []byte) (int, error) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	for {
		if err := c.endCause(&c.readBy); err != nil || len(p) == 0 {
			return 0, err
		}
		switch {
		case len(c.rest) > 0:
			n := copy(p, c.rest)
			if c.rest = c.rest[n:]; len(c.rest) == 0 && cap(c.in) > Buffer {
				c.in = nil
			}
			return n, nil
		case len(c.queue) > 0:
			a := c.queue[0]
			c.queue = c.queue[:copy(c.queue, c.queue[1:])]
			into := p
			if a.size > len(p) {
				if cap(c.in) < a.size {
					c.in = make([]byte, a.size)
				}
				into = c.in
			}
			o := c.world.begin(c, into[:a.size], func(p []byte) error { return c.world.mpi.receive(p, &a) })
			if c.finish(o); !o.done || c.closed {
				continue // endCause will return the reason
			}
			if a.size <= len(p) {
				return a.size, nil
			}
			c.rest = c.in[:a.size]
		case c.ended:
			return 0, io.EOF
		default:
			c.world.wake()
			c.changed.Wait()
		}
	}
}

// Write sends bytes. If there are at most Buffer of them, it may return before they are received.
func (c *conn) Write(p []byte) (int, error) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	for {
		if err := c.endCause(&c.writeBy); err != nil || len(p) == 0 {
			return 0, err
		}
		if c.ended {
			return 0, syscall.EPIPE
		}
		if c.copied == nil || c.copied.done {
			break
		}
		c.changed.Wait()
	}
	if len(p) <= Buffer {
		c.out = append(c.out[:0], p...)
		c.copied = c.send(c.out)
		return len(p), nil
	}
	var all [16]*operation
	operations := all[:0]
	for first := 0; first < len(p); first += Chunk {
		operations = append(operations, c.send(p[first:min(first+Chunk, len(p))]))
	}
	for _, o := range operations {
		c.finish(o)
	}
	if c.world.err != nil || c.closed {
		return 0, c.endCause(&c.writeBy)
	}
	return len(p), nil
}

// Close ends the connection. It does not discard bytes that have already been written.
func (c *conn) Close() error {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.close()
	return nil
}

func (c *conn) close() {
	w := c.world
	if c.closed || w.err != nil {
		c.closed = true
		return
	}
	c.closed = true
	c.readBy.set(c, time.Time{})
	c.writeBy.set(c, time.Time{})
	for _, a := range c.queue {
		w.begin(nil, make([]byte, a.size), func(p []byte) error { return w.mpi.receive(p, &a) })
	}
	c.queue, c.rest = nil, nil
	o := c.send(nil)
	time.AfterFunc(Drain, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !o.done {
			w.fail(fmt.Errorf("mpi: process %d has not received pending messages within %v after the end of a connection", c.key.process, Drain))
		}
	})
	c.sweep()
	c.changed.Broadcast()
}

// sweep removes a connection that both sides have closed.
func (c *conn) sweep() {
	if c.closed && c.ended {
		delete(c.world.conns, c.key)
		c.world.changed.Broadcast()
	}
}

// deadline is the time at which calls time out. The zero value means never.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(c *conn, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at, d.timer = at, nil
	if !at.IsZero() && !c.closed {
		d.timer = time.AfterFunc(time.Until(at), func() {
			c.world.mu.Lock()
			defer c.world.mu.Unlock()
			c.changed.Broadcast()
		})
	}
}

// SetDeadline sets both deadlines. A Write of more than Buffer bytes that has already started
// continues.
func (c *conn) SetDeadline(at time.Time) error { return c.setDeadlines(at, &c.readBy, &c.writeBy) }

// SetReadDeadline sets the time at which Read times out.
func (c *conn) SetReadDeadline(at time.Time) error { return c.setDeadlines(at, &c.readBy) }

// SetWriteDeadline sets the time at which a Write that has not started times out.
func (c *conn) SetWriteDeadline(at time.Time) error { return c.setDeadlines(at, &c.writeBy) }

func (c *conn) setDeadlines(at time.Time, deadlines ...*deadline) error {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	for _, d := range deadlines {
		d.set(c, at)
	}
	return nil
}

// LocalAddr returns the address of this process.
func (c *conn) LocalAddr() net.Addr { return address{c.world.process, 0} }

// RemoteAddr returns the address of the other process.
func (c *conn) RemoteAddr() net.Addr { return address{c.key.process, 0} }
