package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weir-ml/weir/transport"
)

// frame is a message on a control connection.
type frame struct {
	kind  frameKind
	epoch int64
	data  []byte
}

type frameKind byte

// The frames of a control connection. Ranks send begin, withdraw, exchange, cancel and abort to rank
// 0; rank 0 sends begun, differ, withdrawn, exchanged, abort and lost; both send beat and bye.
const (
	begin     frameKind = iota + 1 // a rank begins the next step
	withdraw                       // the rank no longer waits for the step
	begun                          // all ranks have begun the step
	differ                         // the step has not begun: the ranks' hellos differ
	withdrawn                      // the step has not begun
	exchange                       // one rank's bytes
	cancel                         // the rank no longer waits for the exchange; carries the cause
	exchanged                      // all ranks' bytes
	abort                          // the step ends; carries the cause
	lost                           // the job ends; carries the reason
	beat                           // a heartbeat; carries a transport.RankStatus
	bye                            // the rank leaves: no frame follows
)

const (
	frameHeader = 17
	frameSum    = 4
	maxExchange = 16 << 20 // the maximum number of bytes per rank in an exchange
	beats       = 10       // number of heartbeats per Silence and per Stall
	maxWrite    = 1 << 10  // the number of bytes that a slow connection must carry per Silence
)

// append appends the header of a frame and its data, each followed by its checksum. Without the checksums, a
// rank could ignore a damaged frame, and others could wait forever for its answer.
func (f *frame) append(b []byte) []byte {
	begin := len(b)
	b = append(b, byte(f.kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.epoch))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.data)))
	b = binary.LittleEndian.AppendUint32(b, transport.Sum(b[begin:]))
	return binary.LittleEndian.AppendUint32(append(b, f.data...), transport.Sum(f.data))
}

// readFrame reads a frame whose data has at most the given number of bytes.
func readFrame(r io.Reader, most int) (f frame, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return f, err
	}
	f.kind, f.epoch = frameKind(header[0]), int64(binary.LittleEndian.Uint64(header[1:]))
	if err := checkSum(header[13:], header[:13]); err != nil {
		return f, err
	}
	if f.kind < begin || f.kind > bye {
		return f, fmt.Errorf("%w: kind %d", ErrFrame, f.kind)
	}
	if f.data, err = readBytes(r, binary.LittleEndian.Uint32(header[9:]), int64(most)); err != nil {
		return f, err
	}
	var sum [frameSum]byte
	if _, err = io.ReadFull(r, sum[:]); err == nil {
		err = checkSum(sum[:], f.data)
	}
	return f, err
}

// checkSum computes the checksum of the received part of a frame, and compares it with the checksum that the
// sender wrote after it.
func checkSum(sum, received []byte) error {
	if err := transport.Compare(transport.Sum(received), binary.LittleEndian.Uint32(sum)); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// timedConn is a connection whose reads fail if no byte arrives for Config.Silence. It does not count
// the time in which this process was suspended: bytes may have arrived meanwhile.
type timedConn struct {
	net.Conn
	pauses *pauses
}

func (a timedConn) Read(p []byte) (int, error) {
	for {
		if err := a.SetReadDeadline(time.Now().Add(a.pauses.silence)); err != nil {
			return 0, err
		}
		n, err := a.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || a.pauses.last() == 0 {
			return n, err
		}
	}
}

// beating is a connection on which this side sends a beat of one byte at regular intervals while on is set.
type beating struct {
	net.Conn
	every time.Duration
	timer *time.Timer
	mu    sync.Mutex // guards on, and is held while a beat is written
	on    bool
}

func newBeating(conn net.Conn, silence time.Duration) *beating {
	b := &beating{Conn: conn, every: silence / beats}
	b.timer = time.AfterFunc(time.Hour, b.beat)
	b.timer.Stop()
	return b
}

// start makes the connection send beats, the first one after an interval.
func (b *beating) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = true
	b.timer.Reset(b.every)
}

// stop makes the connection send no more beats.
func (b *beating) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = false
	b.timer.Stop()
}

func (b *beating) beat() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on {
		return
	}
	if _, err := b.Write([]byte{linkBeat}); err == nil { // otherwise the connection has ended
		b.timer.Reset(b.every)
	}
}

// peer is one side of a control connection. It has one goroutine for writing and one for reading.
type peer struct {
	conn   net.Conn
	pauses *pauses
	beat   time.Duration // the time between two heartbeats
	out    chan frame
	stop   chan struct{} // closed when the connection ends
	once   sync.Once
	all    sync.WaitGroup
}

// newPeer starts writing heartbeats and posted frames, and passes every received frame to receive
// until receive returns an error. When the connection ends it calls ended once, with the reason,
// which is nil after bye.
func newPeer(conn net.Conn, c *Config, pauses *pauses, most int, status func() transport.RankStatus, receive func(frame) error, ended func(error)) *peer {
	p := &peer{conn: conn, pauses: pauses, beat: min(c.Silence, c.Stall) / beats, out: make(chan frame, 64), stop: make(chan struct{})}
	p.out <- frame{kind: beat} // gives the other side a status immediately
	p.all.Go(func() { p.write(status) })
	p.all.Go(func() {
		ended(p.read(most, receive))
		p.closeConn()
	})
	return p
}

// post queues a frame. The queue holds more frames than a step needs, so if it is full, post ends the
// connection.
func (p *peer) post(f frame) {
	select {
	case p.out <- f:
	case <-p.stop:
	default:
		p.closeConn()
	}
}

// closeConn closes the connection.
func (p *peer) closeConn() {
	p.once.Do(func() {
		close(p.stop)
		closeNow(p.conn)
	})
}

// leave sends bye, waits up to five seconds until the other side sends bye or ends the connection,
// and closes it. Closing immediately could discard frames in transit.
func (p *peer) leave() {
	p.post(frame{kind: bye})
	timer := time.AfterFunc(min(p.pauses.silence, 5*time.Second), p.closeConn)
	p.all.Wait()
	timer.Stop()
}

func (p *peer) write(status func() transport.RankStatus) {
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
		for part := range slices.Chunk(buffer, maxWrite) {
			err := p.conn.SetWriteDeadline(time.Now().Add(p.pauses.silence))
			if err == nil {
				_, err = p.conn.Write(part)
			}
			if err != nil {
				return // the reading goroutine reports the reason
			}
		}
		if f.kind == bye {
			return
		}
	}
}

func (p *peer) read(most int, receive func(frame) error) error {
	r := timedConn{p.conn, p.pauses}
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

// reason describes why a connection has ended.
func reason(err error, silence time.Duration) string {
	switch {
	case err == nil:
		return "it has left the job"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("it has been silent for %v", silence)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe): // a net.Pipe's SetReadDeadline returns the last one
		return "its connection has ended"
	}
	return err.Error()
}
