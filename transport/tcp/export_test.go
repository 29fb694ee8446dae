package tcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/transport"
)

// Kill ends an endpoint like the end of its process, without a message.
func (e *Endpoint[T]) Kill() {
	for _, p := range e.peers {
		p.closeConn()
	}
	e.endJobWith(&LostError{Rank: e.cfg.Rank, Reason: "killed by a test"})
	_ = e.acceptor.listener.Close()
}

// Cut closes a connection of a link.
func Cut(conn net.Conn) { closeNow(conn) }

// Ended returns the reason why a closed control connection has ended.
func Ended(conn net.Conn) string {
	_, err := readFrame(timedConn{conn, &pauses{silence: time.Minute}}, 1)
	return reason(err, time.Minute)
}

// WriteFrame writes a frame with n bytes of data, and a frame that ends the connection, as an endpoint does.
func WriteFrame(conn net.Conn, silence time.Duration, n int) {
	p := &peer{conn: conn, pauses: &pauses{silence: silence}, beat: time.Hour, out: make(chan frame, 2)}
	p.out <- frame{kind: exchange, data: make([]byte, n)}
	p.out <- frame{kind: bye}
	p.write(nil)
}

// Links returns the numbers of links that a rank has dialed and accepted.
func (e *Endpoint[T]) Links() (outs, ins int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.sending), len(e.receiving)
}

// Parse parses bytes with every parser of external data: greetings, answers, frames.
func Parse(data []byte, token string) {
	near, far := net.Pipe()
	go func() {
		_, _ = far.Write(data)
		_ = far.Close()
	}()
	_, hello, _, err := readGreeting(near, token)
	if err == nil && len(hello) > len(data) {
		panic("more than there was")
	}
	_ = near.Close()
	for r := bytes.NewReader(data); ; {
		f, err := readFrame(r, 1<<20)
		if err != nil {
			break
		}
		_, _ = decodeAll(f.data, 3)
		_ = json.Unmarshal(f.data, &transport.RankStatus{})
		_ = json.Unmarshal(f.data, &LostError{})
		_ = decodeCause(1, f.data)
		h := newHub(2, time.Minute, func() transport.RankStatus { return transport.RankStatus{} })
		h.ranks[0].post, h.ranks[1].post = func(frame) {}, func(frame) {}
		_ = h.receive(1, f)
	}
	if len(data) >= messageHeader {
		decodeHeader(data)
	}
	reader, owner := net.Pipe()
	go func() {
		_, _ = io.CopyN(io.Discard, owner, requestBytes)
		_, _ = owner.Write(data)
		_ = owner.Close()
	}()
	_ = request(reader, 1, transport.Tag{Content: transport.Weights}, 0, make([]byte, 3), false, new(atomic.Int64))
	_ = reader.Close()
}

// Greeting returns the greeting of a rank with the given version of the protocol.
func Greeting(version byte, token string) []byte {
	sum := digest(token)
	b := append([]byte{'W', 'E', 'I', 'R', version, purposeJoin}, sum[:]...)
	return append(b, 2, 0, 0, 0, '{', '}')
}

// LateAnswer returns the answer to a rank that joins after the meeting has failed with err.
func LateAnswer(err error) string {
	m := newMeeting(&Config{Ranks: 3}, "here")
	m.finish(err)
	near, far := net.Pipe()
	go m.addRank(far, hello{Rank: 2, Ranks: 3})
	a, _ := readAnswer(near)
	return a.Refused
}

// FlippedFrames flips each bit of a control frame, and returns the bits whose flip readFrame does not notice.
func FlippedFrames() (unnoticed []int) {
	whole := (&frame{abort, 7, []byte("the cause")}).append(nil)
	for bit := range 8 * len(whole) {
		flipped := bytes.Clone(whole)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := readFrame(bytes.NewReader(flipped), 1<<20); !errors.Is(err, ErrFrame) {
			unnoticed = append(unnoticed, bit)
		}
	}
	return unnoticed
}
