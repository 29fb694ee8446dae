package tcp_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport/tcp"
)

// gone is a Network whose rank 0 closes the first connection and accepts no other.
type gone struct{ dials int }

func (*gone) Listen(string) (net.Listener, error) { return silent(make(chan struct{})), nil }

func (g *gone) Dial(context.Context, string) (net.Conn, error) {
	if g.dials++; g.dials > 1 {
		return nil, errors.New("rank 0 is gone")
	}
	conn, _ := net.Pipe()
	return broken{conn}, nil
}

type broken struct{ net.Conn }

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// silent is a listener without connections.
type silent chan struct{}

func (s silent) Accept() (net.Conn, error) {
	<-s
	return nil, net.ErrClosed
}

func (s silent) Close() error {
	close(s)
	return nil
}

func (silent) Addr() net.Addr { return &net.UnixAddr{Name: "silent", Net: "unix"} }

// TestRankZeroIsGone cancels a rank that has lost its connection and cannot connect again.
func TestRankZeroIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		network := &gone{}
		_, err := tcp.Join(ctx, tcp.Config{Rank: 1, Ranks: 2, Network: network, Address: "elsewhere:first"}, numbers{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Greater(t, network.dials, 1)
	})
}
