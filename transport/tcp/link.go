package tcp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/internal/messages"
)

// LinkBuffer is the maximum number of bytes that each side of a link buffers outside the rank's space
// and the system's socket. The receiver buffers fewer.
const LinkBuffer = 64 << 10

// A message on a link is one byte, a header, the sizes of its tensors, and the codec's bytes of each tensor.
// The receiver confirms every message with one byte. It answers an unexpected message with another byte and the
// header of the expected message. Between messages and confirmations, both sides send beats of one byte, so a
// side that waits notices if the network between the two ranks fails.
const (
	messageHeader = 8 + 1 + 3*8 + 4
	readBuffer    = 4 << 10
	maxTensors    = 1 << 12

	message    = 'm'
	taken      = 'a'
	unexpected = 'f'
	linkBeat   = 'b'
)

// direction identifies a link, as seen from one of its ends.
type direction struct {
	rank     int // the rank at the other end
	backward bool
}

// sendEnd is the sender's end of a link. The lock of the endpoint guards all fields except conn.
type sendEnd[T any] struct {
	to   int
	conn net.Conn
	wake chan struct{} // signals that there is a message to write
	stop chan struct{} // closed when the connection is closed

	messages.Queue[T]
	written int64 // number of messages written
	taken   int64 // number of messages that the receiver has confirmed
	fault   error
}

// write writes the messages of a link until the link is closed or a write fails.
func (e *Endpoint[T]) write(l *sendEnd[T]) {
	w := bufio.NewWriterSize(l.conn, LinkBuffer)
	tick := time.NewTicker(e.cfg.Silence / beats)
	defer tick.Stop()
	var header []byte
	for {
		e.mu.Lock()
		empty := l.Len() == 0
		var m messages.Message[T]
		if !empty {
			m = *l.First()
		}
		e.mu.Unlock()
		if empty {
			select {
			case <-l.wake:
			case <-l.stop:
				return
			case <-tick.C:
				_, _ = l.conn.Write([]byte{linkBeat}) // a send or the confirmations will fail too
			}
			continue
		}
		header = appendHeader(append(header[:0], message), m.Tag, len(m.H))
		for _, h := range m.H {
			header = binary.LittleEndian.AppendUint64(header, uint64(e.codec.Size(h)))
		}
		_, err := w.Write(header)
		for i := 0; i < len(m.H) && err == nil; i++ {
			err = e.codec.Encode(w, m.H[i])
		}
		if err == nil {
			err = w.Flush()
		}
		e.mu.Lock()
		l.Pop()
		if l.written++; err != nil && l.fault == nil {
			l.fault = fmt.Errorf("tcp: sending %v to rank %d: %w", m.Tag, l.to, err)
		}
		e.mu.Unlock()
		e.waiter.Wake()
		if err != nil {
			return
		}
	}
}

// confirmations reads the receiver's confirmations until the link is closed or fails.
func (e *Endpoint[T]) confirmations(l *sendEnd[T]) {
	r := bufio.NewReaderSize(timedConn{l.conn, e.pauses}, 64)
	for {
		reply, err := r.ReadByte()
		var fault error
		switch {
		case err == nil && reply == linkBeat:
			continue
		case err == nil && reply == unexpected:
			var header [messageHeader]byte
			if _, err = io.ReadFull(r, header[:]); err == nil {
				tag, count := decodeHeader(header[:])
				fault = &transport.TagError{From: e.cfg.Rank, To: l.to, Expected: tag, ExpectedOf: count}
			}
		case err == nil && reply != taken:
			err = fmt.Errorf("%w: confirmation %d", ErrFrame, reply)
		}
		if err != nil {
			fault = e.cfg.linkFault(l.to, err)
		}
		e.mu.Lock()
		if fault == nil {
			l.taken++
		} else if l.fault == nil {
			if mismatch, is := fault.(*transport.TagError); is { // the error is about the first unconfirmed message
				mismatch.Sent, mismatch.Tensors = l.Find(l.taken + 1)
			}
			l.fault = fault
		}
		e.mu.Unlock()
		e.waiter.Wake()
		if fault != nil {
			return
		}
	}
}

// recvEnd is the receiver's end of a link.
type recvEnd struct {
	conn  *beating
	r     *bufio.Reader
	epoch int64
	bytes [messageHeader]byte
}

// linkFault returns the error for a failed connection between this rank and another one. err is the
// connection's error.
func (c *Config) linkFault(other int, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: rank %d has received nothing from rank %d for %v: check the network between their hosts", ErrSilent, c.Rank, other, c.Silence)
	}
	return fmt.Errorf("tcp: the connection of rank %d to rank %d: %w", c.Rank, other, err)
}

// receive reads a message into new buffers of the codec's space and confirms it. It answers an
// unexpected message with the header of the expected one.
func receive[T any](c *Config, k *recvEnd, codec transport.Codec[T], from int, tag transport.Tag, h []T) error {
	broken := func(err error) error { return c.linkFault(from, err) }
	for {
		if kind, err := k.r.ReadByte(); err != nil {
			return broken(err)
		} else if kind == message {
			break
		} else if kind != linkBeat {
			return broken(fmt.Errorf("%w: message %d", ErrFrame, kind))
		}
	}
	if _, err := io.ReadFull(k.r, k.bytes[:]); err != nil {
		return broken(err)
	}
	sent, count := decodeHeader(k.bytes[:])
	if count > maxTensors {
		return fmt.Errorf("%w: %d tensors", ErrFrame, count)
	}
	if sent != tag || count != len(h) {
		mismatch := &transport.TagError{From: from, To: c.Rank, Sent: sent, Expected: tag, Tensors: count, ExpectedOf: len(h)}
		_, _ = k.conn.Write(appendHeader([]byte{unexpected}, tag, len(h))) // the step fails anyway
		return mismatch
	}
	sizes := [4]int64{}
	rest := sizes[:0]
	for range count {
		if _, err := io.ReadFull(k.r, k.bytes[:8]); err != nil {
			return broken(err)
		}
		rest = append(rest, int64(binary.LittleEndian.Uint64(k.bytes[:])))
	}
	for i, size := range rest {
		var err error
		if h[i], err = codec.Decode(k.r, size); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = broken(err)
			}
			return fmt.Errorf("tcp: receiving %v from rank %d: %w", tag, from, err)
		}
	}
	k.bytes[0] = taken
	if _, err := k.conn.Write(k.bytes[:1]); err != nil {
		return broken(err)
	}
	return nil
}

func appendHeader(b []byte, tag transport.Tag, count int) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(tag.Step))
	b = append(b, byte(tag.Content))
	for _, n := range [...]int{tag.Stage, tag.Microbatch, tag.Param} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return binary.LittleEndian.AppendUint32(b, uint32(count))
}

func decodeHeader(b []byte) (tag transport.Tag, count int) {
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }
	tag = transport.Tag{Step: int64(n(0)), Content: transport.Content(b[8]), Stage: int(n(9)), Microbatch: int(n(17)), Param: int(n(25))}
	return tag, int(binary.LittleEndian.Uint32(b[33:]))
}
