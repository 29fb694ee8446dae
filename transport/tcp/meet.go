package tcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A connection begins with a greeting: "WEIR", the version, its purpose, a digest of the token,
// and the length of the following data, which is read only if the token is right. A joining rank
// receives answers: that it is accepted, and, once all have joined, their addresses. A link
// receives a byte once it is accepted, and so does a connection to read exposed memory.
const (
	protocol       = 5
	greetingBytes  = 4 + 1 + 1 + sha256.Size + 4
	mostHello      = 256 << 10
	mostAnswer     = 16 << 20
	handshake      = 10 * time.Second
	mostHandshakes = 64 // at the same time: another one ends the oldest

	welcome = 'w'
)

// The purposes of a connection.
const (
	purposeJoin byte = iota + 1
	purposeLink
	purposeWindow
)

// hello is the message of a joining rank.
type hello struct {
	Rank, Ranks int
	Address     string // at which it listens
	Facts       []Fact
}

// answer is the reply of rank 0.
type answer struct {
	Here      bool // the rank is accepted, and another answer follows
	Refused   string
	Missing   bool // refused because other ranks are missing
	Addresses []string
}

// opening is the message of a sender that opens a link, or of a reader of exposed memory.
type opening struct {
	From     int
	Backward bool
	Epoch    int64
}

func digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte("weir job " + token)) }

// writeGreeting writes a greeting with a value in JSON.
func writeGreeting(conn net.Conn, purpose byte, token string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	sum := digest(token)
	b := append([]byte{'W', 'E', 'I', 'R', protocol, purpose}, sum[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	_, err = conn.Write(append(b, data...))
	return err
}

// readGreeting reads a greeting. A non-empty refused is the answer to a program of another version or
// token.
func readGreeting(conn net.Conn, token string) (purpose byte, data []byte, refused string, err error) {
	var b [greetingBytes]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return 0, nil, "", err
	}
	size, sum := binary.LittleEndian.Uint32(b[greetingBytes-4:]), digest(token)
	switch {
	case string(b[:4]) != "WEIR" || b[5] < purposeJoin || b[5] > purposeWindow || size > mostHello:
		return 0, nil, "", ErrFrame
	case b[4] != protocol:
		refused = fmt.Sprintf("rank 0 speaks version %d of the protocol, this rank version %d: run the same build everywhere", protocol, b[4])
	case subtle.ConstantTimeCompare(b[6:6+sha256.Size], sum[:]) != 1:
		refused = "the token is not that of this job"
	}
	if refused != "" { // data is discarded: closing the connection earlier could lose the answer
		_, err = io.CopyN(io.Discard, conn, int64(size))
		return b[5], nil, refused, err
	}
	data = make([]byte, size)
	_, err = io.ReadFull(conn, data)
	return b[5], data, "", err
}

// writeAnswer writes an answer.
func writeAnswer(conn net.Conn, a answer) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err = conn.SetWriteDeadline(time.Now().Add(handshake)); err == nil {
		_, err = conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...))
	}
	return err
}

// readAnswer reads an answer.
func readAnswer(conn net.Conn) (a answer, err error) {
	var size [4]byte
	if _, err = io.ReadFull(conn, size[:]); err != nil {
		return a, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > mostAnswer {
		return a, ErrFrame
	}
	data := make([]byte, n)
	if _, err = io.ReadFull(conn, data); err == nil {
		err = json.Unmarshal(data, &a)
	}
	return a, err
}

// acceptor accepts a rank's connections. It reads a limited number of greetings at the same time, and
// passes on the connections that have the token.
type acceptor struct {
	cfg        *Config
	listener   net.Listener
	onJoin     func(conn net.Conn, h hello) // takes over the connection
	onLink     func(conn net.Conn, o opening)
	onWindow   func(conn net.Conn, o opening)
	onRefusal  func(from, why string)
	goroutines sync.WaitGroup
	mu         sync.Mutex
	handshakes []net.Conn // the oldest first
	closed     bool
}

// open listens. If the address is a path, it removes the socket of a killed job.
func (c *Config) open(ctx context.Context, address string) (net.Listener, error) {
	if c.Network != nil {
		return c.Network.Listen(address)
	}
	network, rest, err := split(address)
	if err != nil {
		return nil, err
	}
	var cfg net.ListenConfig
	listener, err := cfg.Listen(ctx, network, rest)
	if errors.Is(err, syscall.EINVAL) && network == "unix" {
		err = fmt.Errorf("%w: the path has %d bytes, and that of a socket has at most 107, or 103 on some systems: give a shorter one", err, len(rest))
	}
	if err == nil || network != "unix" {
		return listener, err
	}
	if probe, dialed := net.Dial(network, rest); dialed == nil { // another process listens
		return nil, errors.Join(err, probe.Close())
	}
	if info, missing := os.Lstat(rest); missing != nil || info.Mode()&os.ModeSocket == 0 || os.Remove(rest) != nil {
		return nil, err
	}
	return cfg.Listen(ctx, network, rest)
}

// serve accepts connections until close.
func (d *acceptor) serve() {
	d.goroutines.Go(func() {
		for {
			conn, err := d.listener.Accept()
			switch {
			case err == nil && d.track(conn, true): // here, so that the list is in the order of arrival
				d.goroutines.Go(func() { d.acceptConn(conn) })
			case err == nil:
				_ = conn.Close() // the acceptor is closed
			case errors.Is(err, net.ErrClosed):
				return
			default:
				time.Sleep(10 * time.Millisecond) // a temporary shortage of resources
			}
		}
	})
}

// track adds or removes a connection that is being greeted, and reports whether the acceptor is still
// open.
func (d *acceptor) track(conn net.Conn, on bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handshakes = slices.DeleteFunc(d.handshakes, func(c net.Conn) bool { return c == conn })
	if on && !d.closed {
		if len(d.handshakes) == mostHandshakes {
			_ = d.handshakes[0].Close() // it has sent nothing of use
			d.handshakes = d.handshakes[1:]
		}
		d.handshakes = append(d.handshakes, conn)
	}
	return !d.closed
}

// acceptConn reads a greeting and passes the connection on, or closes it.
func (d *acceptor) acceptConn(raw net.Conn) {
	handedOver := false
	defer func() {
		if d.track(raw, false); !handedOver {
			_ = raw.Close() // it has sent nothing of use
		}
	}()
	if raw.SetDeadline(time.Now().Add(handshake)) != nil {
		return
	}
	conn := raw
	if d.cfg.TLS != nil {
		conn = tls.Server(raw, d.cfg.TLS)
	}
	purpose, data, refused, err := readGreeting(conn, d.cfg.Token)
	if err != nil {
		return
	}
	if refused != "" {
		d.onRefusal(conn.RemoteAddr().String(), refused)
		if purpose == purposeJoin {
			_ = writeAnswer(conn, answer{Refused: refused}) // the other side may be gone
		}
		return
	}
	var h hello
	var o opening
	value := any(&h)
	if purpose != purposeJoin {
		value = &o
	}
	if json.Unmarshal(data, value) != nil || !d.track(raw, false) {
		return
	}
	if purpose != purposeJoin {
		if _, err := conn.Write([]byte{welcome}); err != nil {
			return
		}
	}
	if raw.SetDeadline(time.Time{}) != nil {
		return
	}
	handedOver = true
	switch purpose {
	case purposeLink:
		d.onLink(conn, o)
	case purposeWindow:
		d.onWindow(conn, o)
	default:
		d.onJoin(conn, h)
	}
}

// close stops listening and ends the current greetings.
func (d *acceptor) close() error {
	d.mu.Lock()
	d.closed = true
	for _, conn := range d.handshakes {
		_ = conn.Close() // it has sent nothing of use
	}
	d.mu.Unlock()
	err := ignoreClosed(d.listener.Close())
	d.goroutines.Wait()
	return err
}

// dial connects to an address, under the context.
func (c *Config) dial(ctx context.Context, address string) (net.Conn, error) {
	if c.Network != nil {
		return c.Network.Dial(ctx, address)
	}
	network, rest, err := split(address)
	if err != nil {
		return nil, err
	}
	quarter := max(c.Silence/4, time.Second)
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: quarter, Interval: quarter, Count: 3}}
	conn, err := dialer.DialContext(ctx, network, rest)
	if err != nil || c.TLS == nil {
		return conn, err
	}
	return tls.Client(conn, c.TLS), nil
}

// dialLink dials a rank and opens a link, or a connection of another purpose. It retries until the context ends if the greeting was not
// read, because of other connections at the same time.
func (c *Config) dialLink(ctx context.Context, address string, purpose byte, o opening) (net.Conn, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, err := c.dial(ctx, address)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			err = c.openLink(conn, purpose, o)
			if stop() && err == nil {
				return conn, nil
			}
			closeNow(conn)
		}
		if ctx.Err() != nil {
			return nil, cmp.Or(err, ctx.Err())
		}
		if !retryable(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// openLink sends the greeting of a link, and waits until it was read.
func (c *Config) openLink(conn net.Conn, purpose byte, o opening) error {
	if err := writeGreeting(conn, purpose, c.Token, o); err != nil {
		return err
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err
	}
	if reply[0] != welcome {
		return ErrFrame
	}
	return nil
}

// retryable reports whether the other side has closed a connection, or had no room for it.
func retryable(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EAGAIN)
}

// closeNow closes a connection without a TLS close message, whose write would block for seconds if the
// other side does not read.
func closeNow(conn net.Conn) {
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn()
	}
	_ = conn.Close() // the connection is over, and its error with it
}

// meeting collects the ranks of a job, on rank 0.
type meeting struct {
	cfg *Config

	mu       sync.Mutex
	conns    []net.Conn // by rank; nil until it has joined, and for rank 0
	answer   answer     // the addresses
	left     int
	refusals []string // refused connections, with reasons
	over     bool
	failed   error      // why the meeting has failed, nil if all ranks have joined
	settled  chan error // failed, sent once
}

func newMeeting(cfg *Config, address string) *meeting {
	m := &meeting{cfg: cfg, conns: make([]net.Conn, cfg.Ranks), left: cfg.Ranks - 1, settled: make(chan error, 1)}
	m.answer.Addresses = make([]string, cfg.Ranks)
	m.answer.Addresses[0] = address
	return m
}

// addRank accepts a rank. A rank of the job that contradicts it ends the meeting for all, which
// could not complete.
func (m *meeting) addRank(conn net.Conn, h hello) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var fault string
	switch c := m.cfg; {
	case m.over && m.failed != nil:
		_ = writeAnswer(conn, m.refusal()) // the other side may be gone
		_ = conn.Close()
		return
	case m.over:
		fault = "the job has begun: rank " + fmt.Sprint(h.Rank) + " is there already"
	case h.Ranks != c.Ranks:
		fault = fmt.Sprintf("rank %d is of %d ranks, rank 0 of %d: start all with the same number", h.Rank, h.Ranks, c.Ranks)
	case h.Rank < 1 || h.Rank >= c.Ranks:
		fault = fmt.Sprintf("there is no rank %d to join: of %d ranks rank 0 is here", h.Rank, c.Ranks)
	case m.conns[h.Rank] != nil:
		fault = fmt.Sprintf("two processes are rank %d: at %s and at %s", h.Rank, m.answer.Addresses[h.Rank], h.Address)
	default:
		fault = factMismatch(c.Facts, h)
	}
	if fault == "" {
		_ = writeAnswer(conn, answer{Here: true}) // the silence of a lost rank is noticed later
		m.conns[h.Rank], m.answer.Addresses[h.Rank] = conn, h.Address
		if m.left--; m.left == 0 {
			m.settle(nil)
		}
		return
	}
	_ = writeAnswer(conn, answer{Refused: fault}) // the other side may be gone
	_ = conn.Close()
	m.settle(fmt.Errorf("%w: %s", ErrRefused, fault))
}

// refusal returns the answer to a rank after the meeting has failed.
func (m *meeting) refusal() answer {
	return answer{Refused: m.failed.Error(), Missing: errors.Is(m.failed, ErrMissing)}
}

// settle ends the meeting once.
func (m *meeting) settle(err error) {
	if !m.over {
		m.over, m.failed = true, err
		m.settled <- err
	}
}

// factMismatch describes the first fact that differs between a rank and rank 0.
func factMismatch(facts []Fact, h hello) string {
	for i, own := range facts {
		switch {
		case i >= len(h.Facts) || h.Facts[i].Name != own.Name:
			return fmt.Sprintf("rank %d does not say its %s: run the same build everywhere", h.Rank, own.Name)
		case h.Facts[i].Value != own.Value:
			return fmt.Sprintf("%s is %s on rank %d and %s on rank 0: start all ranks with the same", own.Name, h.Facts[i].text(), h.Rank, own.text())
		}
	}
	if len(h.Facts) > len(facts) {
		return fmt.Sprintf("rank %d says its %s, rank 0 does not: run the same build everywhere", h.Rank, h.Facts[len(facts)].Name)
	}
	return ""
}

func (f Fact) text() string { return cmp.Or(f.Shown, f.Value) }

// addRefusal notes a refused connection, which may explain a missing rank. It keeps the first few.
func (m *meeting) addRefusal(from, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.refusals) < 3 {
		m.refusals = append(m.refusals, fmt.Sprintf("%s was turned away: %s", from, why))
	}
}

// wait returns the connections of all ranks, and sends each the addresses, or why the meeting has
// failed.
func (m *meeting) wait(ctx context.Context) ([]net.Conn, []string, error) {
	var err error
	timer := time.NewTimer(m.cfg.Meeting)
	defer timer.Stop()
	missing := false
	select {
	case err = <-m.settled:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		missing = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if missing && m.left > 0 {
		err = m.missing()
	}
	m.over, m.failed = true, err
	a := m.answer
	if err != nil {
		a = m.refusal()
	}
	for _, conn := range m.conns {
		if conn == nil {
			continue
		}
		_ = writeAnswer(conn, a) // the silence of a lost rank is noticed later
		if err != nil {
			_ = conn.Close()
		}
	}
	return m.conns, m.answer.Addresses, err
}

// missing names the ranks that have not joined.
func (m *meeting) missing() error {
	var b bytes.Buffer
	some := 0
	for rank := 1; rank < len(m.conns); rank++ {
		if m.conns[rank] != nil {
			continue
		}
		if some++; some <= 16 {
			fmt.Fprintf(&b, " %d", rank)
		}
	}
	if some > 16 {
		fmt.Fprintf(&b, " and %d more", some-16)
	}
	turned := ""
	if len(m.refusals) > 0 {
		turned = " (" + strings.Join(m.refusals, "; ") + ")"
	}
	return fmt.Errorf("%w: after %v of %d ranks these have not come:%s%s", ErrMissing, m.cfg.Meeting, len(m.conns), b.String(), turned)
}

// connectToHub connects to rank 0, retrying until it is there, and returns the control connection and the
// addresses of all ranks. listen is called with the connection, and returns this rank's address.
func (c *Config) connectToHub(ctx context.Context, listen func(net.Conn) (string, error)) (net.Conn, []string, error) {
	meeting, cancel := context.WithTimeoutCause(ctx, c.Meeting, nil)
	defer cancel()
	h := hello{Rank: c.Rank, Ranks: c.Ranks, Facts: c.Facts}
	var conn net.Conn
	var a answer
	var err error
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, err = c.dial(meeting, c.Address)
		if err == nil && h.Address == "" {
			if h.Address, err = listen(conn); err != nil {
				return nil, nil, errors.Join(err, conn.Close())
			}
		}
		if err == nil {
			asked := conn // the next attempt has another connection, or none
			stop := context.AfterFunc(ctx, func() { _ = asked.SetDeadline(time.Unix(1, 0)) })
			if a, err = c.sendHello(asked, h); !retryable(err) {
				defer stop()
				break
			}
			stop()
			_ = asked.Close() // a listener at rank 0's address, but not rank 0
		}
		select {
		case <-meeting.Done():
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			return nil, nil, fmt.Errorf("%w: rank 0 is not at %s after %v: %w", ErrMissing, c.Address, c.Meeting, err)
		case <-time.After(wait):
		}
	}
	if a.Here {
		a, err = readAnswer(conn)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("tcp: rank %d joins at %s: %w", c.Rank, c.Address, err)
	case a.Missing:
		err = fmt.Errorf("%w: rank 0 says: %s", ErrMissing, a.Refused)
	case a.Refused != "":
		err = fmt.Errorf("%w: %s", ErrRefused, strings.TrimPrefix(a.Refused, ErrRefused.Error()+": "))
	case len(a.Addresses) != c.Ranks:
		err = fmt.Errorf("%w: %d addresses of %d ranks", ErrFrame, len(a.Addresses), c.Ranks)
	default:
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, nil, errors.Join(err, ignoreClosed(conn.Close()))
	}
	return conn, a.Addresses, nil
}

// sendHello sends hello and returns the first answer.
func (c *Config) sendHello(conn net.Conn, h hello) (a answer, err error) {
	if err = conn.SetDeadline(time.Now().Add(c.Meeting + handshake)); err == nil { // rank 0 answers within this time if ranks are missing
		err = writeGreeting(conn, purposeJoin, c.Token, h)
	}
	if err == nil {
		a, err = readAnswer(conn)
	}
	return a, err
}

// ignoreClosed returns nil for the error of a connection that is already closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
