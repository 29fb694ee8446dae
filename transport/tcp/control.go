package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// frame is a message on a control connection.
type frame struct {
	kind  kind
	epoch int64
	data  []byte
}

type kind byte

// The frames of a control connection. To rank 0 go begin, withdraw, exchange and abort; from
// it come begun, differ, withdrawn, exchanged, abort and lost; both ways beat and bye.
const (
	begin     kind = iota + 1 // a rank begins the next step
	withdraw                  // it does not wait any longer
	begun                     // all ranks have
	differ                    // the step has not begun: the ranks say that they begin different ones
	withdrawn                 // the step has not begun
	exchange                  // the bytes of a rank
	exchanged                 // those of all
	abort                     // the step is over, and why
	lost                      // the job is over, and why
	beat                      // a heartbeat, with a status
	bye                       // the rank leaves: nothing follows
)

const (
	frameHeader  = 13
	mostExchange = 16 << 20 // bytes that a rank may bring to an exchange
	beats        = 10       // heartbeats within the silence that is allowed, and within a stall
)

func (f *frame) append(b []byte) []byte {
	b = append(b, byte(f.kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.epoch))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.data)))
	return append(b, f.data...)
}

// readFrame reads a frame of at most so many bytes of data.
func readFrame(r io.Reader, most int) (f frame, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return f, err
	}
	f.kind, f.epoch = kind(header[0]), int64(binary.LittleEndian.Uint64(header[1:]))
	size := int64(binary.LittleEndian.Uint32(header[9:]))
	if f.kind < begin || f.kind > bye || size > int64(most) {
		return f, fmt.Errorf("%w: kind %d, %d bytes", ErrFrame, f.kind, size)
	}
	f.data = make([]byte, size)
	_, err = io.ReadFull(r, f.data)
	return f, err
}

// alive is a connection whose reads fail after a silence: whatever comes is a sign of life.
type alive struct {
	net.Conn
	silence time.Duration
}

func (a alive) Read(p []byte) (int, error) {
	if err := a.SetReadDeadline(time.Now().Add(a.silence)); err != nil {
		return 0, err
	}
	return a.Conn.Read(p)
}

// peer is one side of a control connection, with a goroutine that writes and one that reads.
type peer struct {
	conn    net.Conn
	silence time.Duration
	beat    time.Duration // the time between two heartbeats
	out     chan frame
	stop    chan struct{} // closed: the connection is over
	once    sync.Once
	all     sync.WaitGroup
}

// newPeer begins to write heartbeats and what is posted, and hands every frame that comes to
// receive, which says whether there are more. ended is told once, why there are no more: nil
// after bye.
func newPeer(conn net.Conn, c *Config, most int, status func() Status, receive func(frame) error, ended func(error)) *peer {
	p := &peer{conn: conn, silence: c.Silence, beat: min(c.Silence, c.Stall) / beats, out: make(chan frame, 64), stop: make(chan struct{})}
	p.out <- frame{kind: beat} // so that the other side knows something from the beginning
	p.all.Go(func() { p.write(status) })
	p.all.Go(func() {
		ended(p.read(most, receive))
		p.over()
	})
	return p
}

// post queues a frame. The queue is longer than what a step posts to a peer that reads.
func (p *peer) post(f frame) {
	select {
	case p.out <- f:
	case <-p.stop:
	default:
		p.over()
	}
}

// over closes the connection.
func (p *peer) over() {
	p.once.Do(func() {
		close(p.stop)
		cut(p.conn)
	})
}

// leave says bye, waits until the other side has read it, and closes. To close at once could
// take away what is on its way.
func (p *peer) leave() {
	p.post(frame{kind: bye})
	timer := time.AfterFunc(min(p.silence, 5*time.Second), p.over)
	p.all.Wait()
	timer.Stop()
}

func (p *peer) write(status func() Status) {
	tick := time.NewTicker(p.beat)
	defer tick.Stop()
	var buffer []byte
	for {
		var f frame
		select {
		case <-p.stop:
			return
		case f = <-p.out:
		case <-tick.C:
			f.kind = beat
		}
		if f.kind == beat {
			f.data = encode(status())
		}
		if cap(buffer) > 1<<20 {
			buffer = nil
		}
		buffer = f.append(buffer[:0])
		err := p.conn.SetWriteDeadline(time.Now().Add(p.silence))
		if err == nil {
			_, err = p.conn.Write(buffer)
		}
		if err != nil {
			return // The reader finds out why.
		}
		if f.kind == bye {
			return
		}
	}
}

func (p *peer) read(most int, receive func(frame) error) error {
	r := alive{p.conn, p.silence}
	for {
		f, err := readFrame(r, most)
		if err == nil && f.kind == bye {
			return nil
		}
		if err == nil {
			err = receive(f)
		}
		if err != nil {
			return err
		}
	}
}

// reason says in words why a connection is over.
func reason(err error, silence time.Duration) string {
	switch {
	case err == nil:
		return "it has left the job"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("it has been silent for %v", silence)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "its connection has ended"
	}
	return err.Error()
}
