package tcp

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// acceptor accepts connections for a rank. It limits the number of greetings that it reads at the same time,
// and passes on the connections that send the token.
type acceptor struct {
	cfg        *Config
	listener   net.Listener
	meeting    *meeting                       // nil except on rank 0
	onLink     func(conn net.Conn, o opening) // takes over the connection
	onWindow   func(conn net.Conn, o opening)
	onShortage func(err error) // no connection can be accepted
	goroutines sync.WaitGroup
	mu         sync.Mutex
	handshakes []net.Conn // oldest first
	closed     bool
}

// An acceptor that cannot accept a connection tries again after retry, and reports the error if it has failed
// for as long as shortage.
const (
	retry    = 10 * time.Millisecond
	shortage = time.Second
)

// open listens at an address. If the address is a path, it removes a socket left over from a killed
// job.
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
		err = fmt.Errorf("%w: the path has %d bytes, but the path of a socket has at most 107, or 103 on some systems: give a shorter path", err, len(rest))
	}
	if err == nil || network != "unix" {
		return listener, err
	}
	if probe, dialErr := net.Dial(network, rest); dialErr == nil { // another process is listening
		return nil, errors.Join(err, probe.Close())
	}
	if info, statErr := os.Lstat(rest); statErr != nil || info.Mode()&os.ModeSocket == 0 || os.Remove(rest) != nil {
		return nil, err
	}
	return cfg.Listen(ctx, network, rest)
}

// serve accepts connections until close.
func (d *acceptor) serve() {
	d.goroutines.Go(func() {
		for failures := 0; ; {
			conn, err := d.listener.Accept()
			switch {
			case err == nil && d.track(conn): // tracked here to keep the list in order of arrival
				d.goroutines.Go(func() { d.acceptConn(conn) })
			case err == nil:
				_ = conn.Close() // the acceptor is closed
			case errors.Is(err, net.ErrClosed):
				return
			default:
				if failures == int(shortage/retry) {
					d.onShortage(fmt.Errorf("tcp: rank %d has accepted no connection for %v: %w", d.cfg.Rank, shortage, diagnostic.Limit(err)))
				}
				failures++
				time.Sleep(retry) // a shortage of resources, which may be temporary
				continue
			}
			failures = 0
		}
	})
}

// track adds a connection to the list of handshakes, and reports whether the acceptor is still open. If the
// list is full, it closes the oldest connection.
func (d *acceptor) track(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if len(d.handshakes) == maxHandshakes {
		_ = d.handshakes[0].Close() // it has not sent a valid greeting
		d.handshakes = d.handshakes[1:]
	}
	d.handshakes = append(d.handshakes, conn)
	return true
}

// untrack removes a connection from the list of handshakes, and reports whether the acceptor is still open.
func (d *acceptor) untrack(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handshakes = slices.DeleteFunc(d.handshakes, func(c net.Conn) bool { return c == conn })
	return !d.closed
}

// acceptConn reads a greeting and passes the connection on, or closes it.
func (d *acceptor) acceptConn(raw net.Conn) {
	handedOver := false
	defer func() {
		if d.untrack(raw); !handedOver {
			_ = raw.Close() // it has not sent a valid greeting
		}
	}()
	if raw.SetDeadline(time.Now().Add(handshake)) != nil {
		return
	}
	d.cfg.limitBackoff(raw)
	conn := raw
	if d.cfg.TLS != nil {
		conn = tls.Server(raw, d.cfg.TLS)
	}
	purpose, data, refused, err := readGreeting(conn, d.cfg.Token)
	if err != nil {
		return
	}
	if refused != "" {
		if d.meeting != nil {
			d.meeting.addRefusal(conn.RemoteAddr().String(), refused)
		}
		if purpose == purposeJoin {
			_ = writeAnswer(conn, answer{Refused: refused}) // the other side may be gone
		}
		return
	}
	if purpose == purposeJoin {
		var h hello
		if d.meeting == nil || json.Unmarshal(data, &h) != nil || !d.untrack(raw) || raw.SetDeadline(time.Time{}) != nil {
			return
		}
		handedOver = true
		d.meeting.addRank(conn, h)
		return
	}
	var o opening
	if json.Unmarshal(data, &o) != nil || !d.untrack(raw) {
		return
	}
	if _, err := conn.Write([]byte{welcome}); err != nil || raw.SetDeadline(time.Time{}) != nil {
		return
	}
	handedOver = true
	if purpose == purposeLink {
		d.onLink(conn, o)
	} else {
		d.onWindow(conn, o)
	}
}

// close stops listening, aborts handshakes in progress, and waits for the goroutines to end.
func (d *acceptor) close() error {
	d.mu.Lock()
	d.closed = true
	for _, conn := range d.handshakes {
		_ = conn.Close() // it has not sent a valid greeting
	}
	d.mu.Unlock()
	err := ignoreClosed(d.listener.Close())
	d.goroutines.Wait()
	return err
}
