package tcp_test

import (
	"crypto/tls"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// The clock of a rank's host jumps. Waits do not depend on it, so the job goes on over the connections
// that it has. A rank whose clock is outside of the time of the certificates neither connects nor joins,
// and its error says why.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	right := certificates(t)
	var ahead atomic.Int64
	jumping := right.Clone()
	jumping.Time = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	clocks := []*tls.Config{right, jumping}
	at := freePort(t)
	ends, err := join(t.Context(), 2, func(rank int) tcp.Config {
		return tcp.Config{Address: at, Capacity: 1, Silence: time.Second, TLS: clocks[rank]}
	})
	require.NoError(t, err)
	sends := func(from int) error { // a step in which one rank sends to the other
		var all sync.WaitGroup
		errs := make([]error, 2)
		for rank, end := range ends {
			all.Go(func() {
				tag := transport.Tag{Stage: 1}
				if errs[rank] = end.Begin(t.Context(), nil); errs[rank] == nil && rank == from {
					errs[rank] = end.Send(t.Context(), 1-from, tag, []number{num(1)})
				} else if errs[rank] == nil {
					errs[rank] = end.Recv(t.Context(), from, tag, make([]number, 1))
				}
				if errs[rank] == nil {
					_, errs[rank] = end.Exchange(t.Context(), nil)
				}
				if errs[rank] != nil {
					end.Abort(errs[rank])
				}
			})
		}
		all.Wait()
		return errs[from]
	}
	require.NoError(t, sends(0))
	for _, jump := range []time.Duration{day, -day} {
		ahead.Store(int64(jump))
		time.Sleep(1500 * time.Millisecond) // longer than Silence: heartbeats go on
		require.NoError(t, sends(0))
	}
	err = sends(1) // dials
	require.ErrorContains(t, err, "rank 1 connects to rank 0")
	require.ErrorContains(t, err, "certificate has expired or is not yet valid")
	require.NoError(t, closeAll(ends))

	at = freePort(t)
	errs := meet(t, tcp.Config{Ranks: 2, Address: at, TLS: right, Meeting: time.Second}, tcp.Config{Rank: 1, Ranks: 2, Address: at, TLS: jumping, Meeting: time.Second})
	require.ErrorIs(t, errs[0], tcp.ErrMissing)
	require.ErrorContains(t, errs[0], "have not joined: 1")
	require.ErrorContains(t, errs[1], "certificate has expired or is not yet valid")
}
