package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/transport"
)

var _ transport.Windows = (*Endpoint[int])(nil)

// A request for exposed memory consists of a message header with the tag, the reader's epoch, and the
// range. The answer is one byte followed by the bytes of the range, and their checksum if Config.Sums is set,
// or a different byte followed by the length and the text of an error. Until the owner can answer, it sends
// beats.
const (
	requestBytes = messageHeader + 3*8

	served  = 's'
	refused = 'r'
)

// Expose lets the other ranks read b under a tag.
func (e *Endpoint[T]) Expose(tag transport.Tag, b []byte) error { return e.windows.Expose(tag, b) }

// Withdraw ends an exposure. Bytes count as read when this rank has written them to its socket.
func (e *Endpoint[T]) Withdraw(ctx context.Context, tag transport.Tag, n int64) error {
	ended := func() {}
	defer func() { ended() }()
	return e.windows.Withdraw(ctx, tag, n, func() { ended = e.windows.Waits(-1, tag) })
}

// Served returns the number of bytes that other ranks have read from this rank.
func (e *Endpoint[T]) Served() int64 { return e.windows.Served() }

// Get reads from the memory that another rank exposes. Concurrent Gets use different connections.
func (e *Endpoint[T]) Get(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
	if !tag.Content.Exposed() {
		return diagnostic.Errorf(transport.ErrWindow, "Get of %v, which is sent: use Recv", tag)
	}
	w := wait[T]{tag: tag, action: tag.Sends(), peer: from}
	e.mu.Lock()
	if err := e.checkLink(&w); err != nil {
		e.mu.Unlock()
		return err
	}
	epoch, step := e.epoch, e.stepContext
	var conn net.Conn
	if idle := e.idle[from]; len(idle) > 0 {
		conn, e.idle[from] = idle[len(idle)-1], idle[:len(idle)-1]
	}
	e.mu.Unlock()
	defer e.windows.Waits(from, tag)()
	getting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(step, func() { cancel(e.endOf(step, &w)) })()
	var err error
	if conn == nil {
		dialing, stop := context.WithTimeout(getting, min(e.cfg.Silence, handshake))
		conn, err = e.cfg.dialLink(dialing, e.addresses[from], purposeWindow, opening{From: e.cfg.Rank, Epoch: epoch})
		stop()
	}
	if err == nil {
		alive := context.AfterFunc(getting, func() { closeNow(conn) })
		err = request(timedConn{conn, e.pauses}, epoch, tag, offset, dst, e.cfg.Sums, &e.bytesRead)
		if alive() && err == nil && e.keep(from, conn, epoch) {
			return nil
		}
		closeNow(conn)
	}
	if err == nil || errors.Is(err, transport.ErrWindow) {
		return err
	}
	if errors.Is(err, transport.ErrSum) {
		return fmt.Errorf("tcp: reading %v from rank %d: %w", tag, from, err)
	}
	cause, stop := context.WithTimeout(getting, min(e.cfg.Silence, 2*time.Second)) // the cause arrives on the control connection
	defer stop()
	if <-cause.Done(); getting.Err() != nil {
		return context.Cause(getting)
	}
	return fmt.Errorf("tcp: reading %v: %w", tag, e.cfg.linkFault(from, err))
}

// endOf returns the reason why a step has ended, for a waiting call.
func (e *Endpoint[T]) endOf(step context.Context, w *wait[T]) error {
	cause := context.Cause(step)
	e.mu.Lock()
	defer e.mu.Unlock()
	if cause == e.jobError {
		return &waitError{w.action, w.tag, w.peer, cause}
	}
	return cause
}

// keep keeps a connection for the next Get, unless the step has ended, and reports whether it does.
func (e *Endpoint[T]) keep(from int, conn net.Conn, epoch int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobError != nil || e.cause != nil || e.epoch != epoch {
		return false
	}
	e.idle[from] = append(e.idle[from], conn)
	return true
}

// countedConn counts the bytes that are read from a connection.
type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// request asks for a range and reads it, followed by its checksum if sums is set. It adds to count the number
// of bytes of the answer that it has read.
func request(conn net.Conn, epoch int64, tag transport.Tag, offset int64, dst []byte, sums bool, count *atomic.Int64) error {
	b := appendHeader(make([]byte, 0, requestBytes), tag, 0)
	for _, n := range [...]int64{epoch, offset, int64(len(dst))} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if _, err := conn.Write(b); err != nil {
		return err
	}
	for b[0] = linkBeat; b[0] == linkBeat; {
		if _, err := io.ReadFull(conn, b[:1]); err != nil {
			return err
		}
	}
	switch b[0] {
	case served:
		if _, err := io.ReadFull(countedConn{conn, count}, dst); err != nil || !sums {
			return err
		}
		if _, err := io.ReadFull(conn, b[:4]); err != nil {
			return err
		}
		return transport.Compare(transport.Sum(dst), binary.LittleEndian.Uint32(b))
	case refused:
		if _, err := io.ReadFull(conn, b[:4]); err != nil {
			return err
		}
		text, err := readBytes(conn, binary.LittleEndian.Uint32(b), maxText)
		if err != nil {
			return err
		}
		return diagnostic.Errorf(transport.ErrWindow, "%s", text)
	}
	return fmt.Errorf("%w: answer %d", ErrFrame, b[0])
}

// addWindow takes over a connection on which another rank reads. It closes the connection if the job
// or the step has ended.
func (e *Endpoint[T]) addWindow(conn net.Conn, o opening) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobError != nil || o.Epoch < e.epoch || o.Epoch == e.epoch && e.cause != nil {
		closeNow(conn) // the reader notices
		return
	}
	e.servedConns[conn] = o.Epoch
	e.servers.Go(func() {
		_ = e.serve(newBeating(conn, e.cfg.Silence)) // the reader notices the end of the connection
		closeNow(conn)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.servedConns, conn)
	})
}

// serve answers the requests on a connection until the connection or the step ends.
func (e *Endpoint[T]) serve(conn *beating) error {
	defer conn.stop()
	var b [requestBytes]byte
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		tag, _ := decodeHeader(b[:])
		n := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[messageHeader+8*i:])) }
		err := e.windows.Read(context.Background(), n(0), tag, n(1), n(2), conn.start, func(exposed []byte) error {
			conn.stop()
			_, err := conn.Write([]byte{served})
			if err == nil {
				_, err = conn.Write(exposed)
			}
			if err == nil && e.cfg.Sums {
				_, err = conn.Write(binary.LittleEndian.AppendUint32(b[:0], transport.Sum(exposed)))
			}
			return err
		})
		conn.stop()
		if errors.Is(err, transport.ErrWindow) {
			text := diagnostic.Text(err, nil) // the other side adds the kind
			text = text[:min(len(text), maxText)]
			_, err = conn.Write(append(binary.LittleEndian.AppendUint32([]byte{refused}, uint32(len(text))), text...))
		}
		if err != nil {
			return err
		}
	}
}

// closeWindows ends the step's reads, by this rank and by others.
func (e *Endpoint[T]) closeWindows(cause error) {
	for conn, epoch := range e.servedConns {
		if epoch <= e.epoch || e.jobError != nil {
			closeNow(conn)
		}
	}
	for _, conns := range e.idle {
		for _, conn := range conns {
			closeNow(conn)
		}
	}
	clear(e.idle)
	e.cancelStep(cause)
	if e.jobError != nil {
		e.windows.Close(cause)
	} else {
		e.windows.End(cause)
	}
}
