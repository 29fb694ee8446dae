package tcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// meeting collects the ranks of a job, on rank 0.
type meeting struct {
	cfg *Config

	mu        sync.Mutex
	conns     []net.Conn // by rank; nil until it has joined, and for rank 0
	addresses []string   // complete when all ranks have joined
	left      int        // number of ranks that have not joined
	refusals  []string   // refused connections and the reasons
	over      bool
	failed    error         // the reason why the meeting has failed; nil if all ranks have joined
	done      chan struct{} // closed when the meeting is over
}

func newMeeting(cfg *Config, address string) *meeting {
	m := &meeting{cfg: cfg, conns: make([]net.Conn, cfg.Ranks), addresses: make([]string, cfg.Ranks), left: cfg.Ranks - 1, done: make(chan struct{})}
	m.addresses[0] = address
	return m
}

// addRank accepts a rank. A rank that does not match the job fails the meeting for all ranks, because
// the job was probably started wrongly and would otherwise wait for a rank that never joins.
func (m *meeting) addRank(conn net.Conn, h hello) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var fault string
	switch c := m.cfg; {
	case m.over && m.failed != nil:
		refuse(conn, m.refusal())
		return
	case m.over:
		fault = fmt.Sprintf("the job has begun: rank %d has joined already", h.Rank)
	case h.Ranks != c.Ranks:
		fault = fmt.Sprintf("rank %d is of %d ranks, rank 0 of %d: start all ranks with the same number", h.Rank, h.Ranks, c.Ranks)
	case h.Rank < 1 || h.Rank >= c.Ranks:
		fault = fmt.Sprintf("rank %d cannot join: the job has %d ranks, and this process is rank 0", h.Rank, c.Ranks)
	case m.conns[h.Rank] != nil:
		fault = fmt.Sprintf("two processes are rank %d: at %s and at %s", h.Rank, m.addresses[h.Rank], h.Address)
	default:
		fault = factMismatch(c.Facts, h)
	}
	if fault != "" {
		refuse(conn, answer{Refused: fault})
		m.finish(diagnostic.Errorf(ErrRefused, "%s", fault))
		return
	}
	_ = writeAnswer(conn, answer{Accepted: true}) // if the rank is lost, its silence ends the job later
	m.conns[h.Rank], m.addresses[h.Rank] = conn, h.Address
	if m.left--; m.left == 0 {
		m.finish(nil)
	}
}

// refusal returns the answer to a rank if the meeting has failed.
func (m *meeting) refusal() answer {
	return answer{Refused: diagnostic.Text(m.failed, nil), Missing: errors.Is(m.failed, ErrMissing)}
}

// refuse answers a rank that cannot join, and closes its connection. The other side may be gone.
func refuse(conn net.Conn, a answer) {
	_ = writeAnswer(conn, a)
	_ = conn.Close()
}

// finish ends the meeting. Only the first call has an effect.
func (m *meeting) finish(err error) {
	if !m.over {
		m.over, m.failed = true, err
		close(m.done)
	}
}

// factMismatch describes the first fact that differs between a rank and rank 0, or returns "".
func factMismatch(facts []Fact, h hello) string {
	for i, own := range facts {
		switch {
		case i >= len(h.Facts) || h.Facts[i].Name != own.Name:
			return fmt.Sprintf("rank %d does not state its %s: run the same build everywhere", h.Rank, own.Name)
		case h.Facts[i].Value != own.Value:
			return fmt.Sprintf("%s is %s on rank %d and %s on rank 0: start all ranks with the same one", own.Name, h.Facts[i].text(), h.Rank, own.text())
		}
	}
	if len(h.Facts) > len(facts) {
		return fmt.Sprintf("rank %d states its %s, rank 0 does not: run the same build everywhere", h.Rank, h.Facts[len(facts)].Name)
	}
	return ""
}

func (f Fact) text() string { return cmp.Or(f.Shown, f.Value) }

// addRefusal records a refused connection, which may explain a missing rank. It keeps only the first
// few.
func (m *meeting) addRefusal(address, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.refusals) < 3 {
		m.refusals = append(m.refusals, fmt.Sprintf("%s was refused: %s", address, reason))
	}
}

// wait waits for all ranks and returns their connections and addresses. It sends every rank the
// addresses, or the reason why the meeting has failed.
func (m *meeting) wait(ctx context.Context) ([]net.Conn, []string, error) {
	timer := time.NewTimer(m.cfg.Meeting)
	defer timer.Stop()
	select {
	case <-m.done:
	case <-ctx.Done():
	case <-timer.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finish(cmp.Or(context.Cause(ctx), m.missing()))
	for _, conn := range m.conns {
		switch {
		case conn == nil:
		case m.failed != nil:
			refuse(conn, m.refusal())
		default:
			_ = writeAnswer(conn, answer{Addresses: m.addresses}) // if the rank is lost, its silence ends the job later
		}
	}
	return m.conns, m.addresses, m.failed
}

// missing returns an error that names the ranks that have not joined.
func (m *meeting) missing() error {
	var b bytes.Buffer
	count := 0
	for rank := 1; rank < len(m.conns); rank++ {
		if m.conns[rank] != nil {
			continue
		}
		if count++; count <= 16 {
			fmt.Fprintf(&b, " %d", rank)
		}
	}
	if count > 16 {
		fmt.Fprintf(&b, " and %d more", count-16)
	}
	if len(m.refusals) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(m.refusals, "; "))
	}
	return fmt.Errorf("%w: after %v these of %d ranks have not joined:%s", ErrMissing, m.cfg.Meeting, len(m.conns), b.String())
}

// connectToHub connects to rank 0 and joins the job. It retries until rank 0 answers or
// Config.Meeting has passed, and returns the control connection and the addresses of all ranks. It
// calls listen once, with the first connection, to get this rank's address.
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
			asked := conn // conn may be different or nil in the next attempt
			stop := context.AfterFunc(ctx, func() { _ = asked.SetDeadline(time.Unix(1, 0)) })
			if a, err = c.sendHello(asked, h); !retryable(err) {
				defer stop()
				break
			}
			stop()
			_ = asked.Close() // the process that listens at rank 0's address is not rank 0 yet
		}
		select {
		case <-meeting.Done():
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			return nil, nil, fmt.Errorf("%w: rank 0 does not answer at %s after %v: %w", ErrMissing, c.Address, c.Meeting, diagnostic.Limit(err))
		case <-time.After(wait):
		}
	}
	if a.Accepted {
		a, err = readAnswer(conn)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("tcp: rank %d joins at %s: %w", c.Rank, c.Address, err)
	case a.Missing:
		err = fmt.Errorf("%w: rank 0 reports: %s", ErrMissing, a.Refused)
	case a.Refused != "":
		err = diagnostic.Errorf(ErrRefused, "%s", a.Refused)
	case len(a.Addresses) != c.Ranks:
		err = fmt.Errorf("%w: %d addresses for %d ranks", ErrFrame, len(a.Addresses), c.Ranks)
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
	if err = conn.SetDeadline(time.Now().Add(c.Meeting + handshake)); err == nil { // rank 0 answers within this time even if ranks are missing
		err = writeGreeting(conn, purposeJoin, c.Token, h)
	}
	if err == nil {
		a, err = readAnswer(conn)
	}
	return a, err
}
