package tcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// dial connects to an address. The context limits only dialing.
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
	if err != nil {
		return nil, err
	}
	if c.limitBackoff(conn); c.TLS == nil {
		return conn, nil
	}
	return tls.Client(conn, c.TLS), nil
}

// dialLink dials a rank and opens a connection for a link or for reads of exposed memory. If the rank drops or
// cannot accept the connection, for instance because too many handshakes are in progress there, dialLink
// retries until the context ends.
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

// openLink sends a connection's greeting, and waits until the other side has accepted it.
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

// retryable reports whether an error means that the other side closed a connection or could not
// accept it.
func retryable(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EAGAIN)
}

// closeNow closes a connection without a TLS close message, whose write would block for seconds if the
// other side does not read.
func closeNow(conn net.Conn) {
	if b, is := conn.(*beating); is {
		b.timer.Stop()
		conn = b.Conn
	}
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn()
	}
	_ = conn.Close() // nothing depends on the connection any longer
}

// ignoreClosed returns err, or nil if it says that a connection is already closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
