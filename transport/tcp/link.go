package tcp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/weir-ml/weir/transport"
)

// LinkBuffer is how many bytes a link holds outside of the spaces of its ranks, apart from what
// the system's sockets hold.
const LinkBuffer = 64 << 10

// A message on a link is a header, the sizes of its tensors, and what the codec writes of
// each. The receiver confirms every message with a byte, and one that it did not expect with
// another one and the header of what it expected.
const (
	messageHeader = 8 + 1 + 3*8 + 4
	readBuffer    = 4 << 10
	mostTensors   = 1 << 12

	taken      = 'a'
	unexpected = 'f'
)

// direction is a link as one of its ends knows it: the other rank, and its direction.
type direction struct {
	rank     int
	backward bool
}

// out is the sender's end of a link. The lock of the endpoint guards it, but for conn.
type out[T any] struct {
	to   int
	conn net.Conn
	kick chan struct{} // a message is there
	stop chan struct{} // closed: the connection is

	ring         []message[T] // to be written, the oldest first
	first, count int
	sent         int64
	written      int64
	taken        int64
	waits        []sending // in the order of sending; from waited on those that the sender has not waited for
	waited       int
	fault        error
}

// message is the tensors that a rank has lent.
type message[T any] struct {
	tag transport.Tag
	h   []T
}

// sending is the number of a message, from 1, by its tag.
type sending struct {
	tag     transport.Tag
	number  int64
	tensors int
}

// push queues a message. The ring grows to as many messages as ever waited at once.
func (l *out[T]) push(tag transport.Tag, h []T) {
	if l.count == len(l.ring) {
		ring := make([]message[T], max(2*len(l.ring), 1))
		for i := range l.count {
			ring[i] = l.ring[(l.first+i)%len(l.ring)]
		}
		l.ring, l.first = ring, 0
	}
	m := &l.ring[(l.first+l.count)%len(l.ring)]
	m.tag, m.h = tag, append(m.h[:0], h...)
	l.count++
	l.sent++
	if l.waited > 0 && len(l.waits) == cap(l.waits) {
		l.waits, l.waited = l.waits[:copy(l.waits, l.waits[l.waited:])], 0
	}
	l.waits = append(l.waits, sending{tag, l.sent, len(h)})
	select {
	case l.kick <- struct{}{}:
	default: // the writer has not seen the last one yet
	}
}

// take returns the number of the message under a tag that the sender has not waited for yet; 0
// where there is none. Waits mostly come in the order of sending.
func (l *out[T]) take(tag transport.Tag) int64 {
	for i := l.waited; i < len(l.waits); i++ {
		if l.waits[i].tag == tag {
			number := l.waits[i].number
			copy(l.waits[l.waited+1:i+1], l.waits[l.waited:i])
			l.waited++
			return number
		}
	}
	return 0
}

// write writes the messages of a link until it is closed.
func (e *Endpoint[T]) write(l *out[T]) {
	w := bufio.NewWriterSize(l.conn, LinkBuffer)
	var header []byte
	for {
		e.mu.Lock()
		empty := l.count == 0
		var m message[T]
		if !empty {
			m = l.ring[l.first]
		}
		e.mu.Unlock()
		if empty {
			select {
			case <-l.kick:
			case <-l.stop:
				return
			}
			continue
		}
		header = appendHeader(header[:0], m.tag, len(m.h))
		for _, h := range m.h {
			header = binary.LittleEndian.AppendUint64(header, uint64(e.codec.Size(h)))
		}
		_, err := w.Write(header)
		for i := 0; i < len(m.h) && err == nil; i++ {
			err = e.codec.Encode(w, m.h[i])
		}
		if err == nil {
			err = w.Flush()
		}
		e.mu.Lock()
		clear(m.h)
		l.first, l.count = (l.first+1)%len(l.ring), l.count-1
		if l.written++; err != nil && l.fault == nil {
			l.fault = fmt.Errorf("tcp: sending %v to rank %d: %w", m.tag, l.to, err)
		}
		e.mu.Unlock()
		e.wakeUp()
		if err != nil {
			return
		}
	}
}

// confirmations reads what the receiver says, until the link is closed.
func (e *Endpoint[T]) confirmations(l *out[T]) {
	r := bufio.NewReaderSize(l.conn, 64)
	for {
		said, err := r.ReadByte()
		var fault error
		switch {
		case err == nil && said == unexpected:
			var header [messageHeader]byte
			if _, err = io.ReadFull(r, header[:]); err == nil {
				tag, count := decodeHeader(header[:])
				fault = &transport.TagError{From: e.cfg.Rank, To: l.to, Expected: tag, ExpectedOf: count}
			}
		case err == nil && said != taken:
			err = fmt.Errorf("%w: confirmation %d", ErrFrame, said)
		}
		if err != nil {
			fault = fmt.Errorf("tcp: the link to rank %d: %w", l.to, err)
		}
		e.mu.Lock()
		if fault == nil {
			l.taken++
		} else if l.fault == nil {
			if mismatch, is := fault.(*transport.TagError); is { // of the first message that was not taken
				for _, s := range l.waits {
					if s.number == l.taken+1 {
						mismatch.Sent, mismatch.Tensors = s.tag, s.tensors
					}
				}
			}
			l.fault = fault
		}
		e.mu.Unlock()
		e.wakeUp()
		if fault != nil {
			return
		}
	}
}

// in is the receiver's end of a link.
type in struct {
	conn  net.Conn
	r     *bufio.Reader
	epoch int64
	bytes [messageHeader]byte
}

// receive reads a message into new buffers of the codec's space.
func receive[T any](k *in, codec transport.Codec[T], from, to int, tag transport.Tag, h []T) error {
	broken := func(err error) error { return fmt.Errorf("tcp: the link from rank %d: %w", from, err) }
	if _, err := io.ReadFull(k.r, k.bytes[:]); err != nil {
		return broken(err)
	}
	sent, count := decodeHeader(k.bytes[:])
	if count > mostTensors {
		return fmt.Errorf("%w: %d tensors", ErrFrame, count)
	}
	if sent != tag || count != len(h) {
		mismatch := &transport.TagError{From: from, To: to, Sent: sent, Expected: tag, Tensors: count, ExpectedOf: len(h)}
		_, _ = k.conn.Write(appendHeader([]byte{unexpected}, tag, len(h))) // The step is over.
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
