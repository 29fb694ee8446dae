package tcp_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// short is a network in which one address accepts no connections, because the process has too many open files.
type short struct {
	*pipes
	address string
}

type shortListener struct{ net.Listener }

func (s short) Listen(address string) (net.Listener, error) {
	l, err := s.pipes.Listen(address)
	if address == s.address {
		l = shortListener{l}
	}
	return l, err
}

func (l shortListener) Accept() (net.Conn, error) {
	if l.Listener.(*pipeListener).closed() {
		return nil, net.ErrClosed
	}
	return nil, syscall.EMFILE
}

// TestTooManyOpenFiles: a rank that accepts no connections for a second ends the step with the reason, also if it
// is rank 0 and the others have not joined.
func TestTooManyOpenFiles(t *testing.T) {
	const reason = " has accepted no connection for 1s: too many open files: let the process open more, as with ulimit -n"
	synctest.Test(t, func(t *testing.T) {
		network := short{&pipes{}, "pipe:1"}
		names := []string{"pipe:0", "pipe:1"}
		ends, err := join(t.Context(), 2, func(rank int) tcp.Config {
			return tcp.Config{Network: network, Address: names[0], Listen: names[rank]}
		})
		require.NoError(t, err)
		var all sync.WaitGroup
		for rank, end := range ends {
			all.Go(func() {
				err := end.Begin(t.Context(), nil)
				if tag := (transport.Tag{Microbatch: 5}); err == nil && rank == 0 {
					err = end.Send(t.Context(), 1, tag, make([]number, 1))
				} else if err == nil {
					err = end.Recv(t.Context(), 0, tag, make([]number, 1))
				}
				require.ErrorContains(t, err, "rank 1"+reason)
				end.Abort(context.Canceled)
			})
		}
		all.Wait()
		require.NoError(t, closeAll(ends))
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := tcp.Join(t.Context(), tcp.Config{Ranks: 2, Network: short{&pipes{}, "pipe:0"}, Address: "pipe:0"}, numbers{})
		require.ErrorIs(t, err, tcp.ErrMissing)
		require.ErrorContains(t, err, "rank 0"+reason)
	})
}
