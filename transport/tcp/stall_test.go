package tcp_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// pipes is a Network in memory, for tests with virtual time.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

type pipeListener struct {
	name  string
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func (p *pipes) listener(name string) *pipeListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners == nil {
		p.listeners = map[string]*pipeListener{}
	}
	if p.listeners[name] == nil {
		p.listeners[name] = &pipeListener{name: name, conns: make(chan net.Conn), over: make(chan struct{})}
	}
	return p.listeners[name]
}

func (p *pipes) Listen(name string) (net.Listener, error) { return p.listener(name), nil }

func (p *pipes) Dial(ctx context.Context, name string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.listener(name).conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-d.conns:
		return conn, nil
	case <-d.over:
		return nil, net.ErrClosed
	}
}

func (d *pipeListener) closed() bool {
	select {
	case <-d.over:
		return true
	default:
		return false
	}
}

func (d *pipeListener) Close() error   { d.once.Do(func() { close(d.over) }); return nil }
func (d *pipeListener) Addr() net.Addr { return pipeAddr(d.name) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return strings.TrimPrefix(string(a), "pipe:") }

// stalls joins three ranks: 0 and 1 receive, and 2 runs do.
func stalls(t *testing.T, config tcp.Config, do func(ctx context.Context, end *tcp.Endpoint[number])) []error {
	network := &pipes{}
	names := []string{"pipe:0", "pipe:1", "pipe:2"}
	ends := joined(t, t.Context(), 3, func(rank int) tcp.Config {
		cfg := config
		cfg.Network, cfg.Address, cfg.Listen = network, names[0], names[rank]
		return cfg
	})
	errs := make([]error, 3)
	var all sync.WaitGroup
	for rank, end := range ends {
		all.Go(func() {
			if errs[rank] = end.Begin(t.Context(), []byte("planted")); errs[rank] != nil {
				return
			}
			if rank == 2 {
				do(t.Context(), end)
				_, errs[rank] = end.Exchange(t.Context(), nil)
			} else {
				end.Runs(9, schedule.NewAction(schedule.RecvF, rank, 5))
				if errs[rank] = end.Recv(t.Context(), 2, transport.Tag{Stage: rank - 1, Microbatch: 5}, make([]number, 1)); errs[rank] == nil {
					_, errs[rank] = end.Exchange(t.Context(), nil)
				}
			}
			end.Abort(context.Canceled)
		})
	}
	all.Wait()
	require.NoError(t, closeAll(ends))
	return errs
}

// When no rank has made progress for the stall timeout, every rank gets the activity of all ranks,
// independently of the silence timeout. The rank that caused the stall gets it in its next call.
func TestStall(t *testing.T) {
	for _, config := range []tcp.Config{{}, {Stall: time.Minute}, {Stall: 4 * time.Second, Silence: -1}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			errs := stalls(t, config, func(_ context.Context, end *tcp.Endpoint[number]) {
				end.Runs(9, schedule.NewAction(schedule.F, 2, 7))
				time.Sleep(time.Hour)
			})
			require.GreaterOrEqual(t, time.Since(began), time.Hour)
			for _, err := range errs {
				var stall *transport.StallError
				require.ErrorAs(t, err, &stall)
				want := config.Stall
				if want == 0 {
					want = 5 * time.Minute
				}
				require.InDelta(t, want, stall.IdleFor, float64(want)/4)
				require.ErrorContains(t, err, "rank 0, step 9, runs 0RECV_F5, has waited")
				require.ErrorContains(t, err, "rank 2, step 9, runs 2F7")
			}
		})
	}
}

// Ranks that wait for a slow rank that makes progress have not stalled, neither within a step nor
// while they wait for the next one.
func TestSlowIsNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := stalls(t, tcp.Config{Stall: 4 * time.Second}, func(ctx context.Context, end *tcp.Endpoint[number]) {
			for m := range 10 {
				end.Runs(9, schedule.NewAction(schedule.F, 2, m))
				time.Sleep(3 * time.Second)
			}
			for rank := range 2 {
				end.Runs(9, schedule.NewAction(schedule.SendF, 2, rank))
				if end.Send(ctx, rank, transport.Tag{Stage: rank - 1, Microbatch: 5}, []number{num(1)}) != nil {
					return
				}
			}
		})
		for _, err := range errs {
			require.NoError(t, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{}
		ends := joined(t, t.Context(), 3, func(rank int) tcp.Config {
			return tcp.Config{Network: network, Address: "pipe:0", Listen: []string{"pipe:0", "pipe:1", "pipe:2"}[rank], Stall: 4 * time.Second}
		})
		errs := make([]error, 3)
		var all sync.WaitGroup
		for rank, end := range ends {
			all.Go(func() {
				for step := 0; step < 2 && errs[rank] == nil; step++ {
					time.Sleep(time.Duration(rank) * time.Hour) // writing a checkpoint, for example
					errs[rank] = end.Begin(t.Context(), nil)
				}
				if errs[rank] == nil {
					_, errs[rank] = end.Exchange(t.Context(), nil)
				}
			})
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.NoError(t, closeAll(ends))
	})
}

// The error about a lost rank has the runner's step, not the number of steps and evaluations that
// the transport has run.
func TestLostInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := stalls(t, tcp.Config{Pipeline: 1}, func(ctx context.Context, end *tcp.Endpoint[number]) {
			end.Runs(41, schedule.NewAction(schedule.F, 2, 7))
			require.EqualValues(t, 41, end.Status().Step)
			time.Sleep(2 * time.Second) // a heartbeat
			end.Kill()
		})
		for _, err := range errs[:2] {
			var lost *tcp.LostError
			require.ErrorAs(t, err, &lost)
			require.EqualValues(t, 41, lost.Last.Step)
			require.ErrorContains(t, err, "rank 2 is lost (rank 0 of replica 2): it")
			require.ErrorContains(t, err, "its last heartbeat was in step 41: runs 2F7")
			require.Equal(t, launch.Elsewhere, launch.ExitStatus(err))
		}
	})
}

// A connection that the other side closes before a read ends like one that is closed during a read.
func TestClosedBeforeTheRead(t *testing.T) {
	near, far := net.Pipe()
	require.NoError(t, far.Close())
	require.Equal(t, "its connection has ended", tcp.Ended(near))
}

// Reads of exposed memory that wait are a stall too, while the goroutines of the ranks wait for
// nothing.
func TestStallInAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{}
		ends := joined(t, t.Context(), 2, func(rank int) tcp.Config {
			return tcp.Config{Network: network, Address: "pipe:0", Listen: []string{"pipe:0", "pipe:1"}[rank], Stall: time.Minute}
		})
		errs := make([]error, 2)
		var all sync.WaitGroup
		for rank, end := range ends {
			all.Go(func() {
				require.NoError(t, end.Begin(t.Context(), nil))
				end.Runs(9, schedule.NewAction(schedule.F, rank, 5))
				grads := transport.Tag{Stage: 1, Content: transport.Grads}
				if rank == 0 {
					errs[rank] = end.Get(t.Context(), 1, grads, 0, make([]byte, 1))
				} else {
					grads.Content = transport.Sums
					require.NoError(t, end.Expose(grads, make([]byte, 1)))
					errs[rank] = end.Withdraw(t.Context(), grads, 1)
				}
				end.Abort(errs[rank])
			})
		}
		all.Wait()
		for _, err := range errs {
			var stall *transport.StallError
			require.ErrorAs(t, err, &stall)
			require.ErrorContains(t, err, "rank 0, step 9, runs 0F5, has waited 1m")
			require.ErrorContains(t, err, "for 1REDUCE_GRAD of rank 1; rank 1, step 9, runs 1F5, has waited 1m")
			require.ErrorContains(t, err, "for all ranks")
		}
		require.NoError(t, closeAll(ends))
	})
}

// slowReads is a Network whose dialed connections, after the first one, deliver one byte per
// second.
type slowReads struct {
	pipes
	dialed bool
}

func (s *slowReads) Dial(ctx context.Context, name string) (net.Conn, error) {
	conn, err := s.pipes.Dial(ctx, name)
	if s.dialed && err == nil {
		conn = slowConn{conn}
	}
	s.dialed = true
	return conn, err
}

type slowConn struct{ net.Conn }

func (c slowConn) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return c.Conn.Read(p[:min(len(p), 1)])
}

// A read of exposed memory that takes longer than the stall timeout is not a stall while bytes arrive.
func TestSlowReadIsNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &slowReads{}
		ends := joined(t, t.Context(), 2, func(rank int) tcp.Config {
			return tcp.Config{Network: network, Address: "pipe:0", Listen: []string{"pipe:0", "pipe:1"}[rank], Stall: 8 * time.Second}
		})
		var all sync.WaitGroup
		for rank, end := range ends {
			all.Go(func() {
				require.NoError(t, end.Begin(t.Context(), nil))
				tag := transport.Tag{Content: transport.Weights}
				if rank == 0 {
					require.NoError(t, end.Expose(tag, []byte("a minute of bytes, of which each takes as long as the others")))
					require.NoError(t, end.Withdraw(t.Context(), tag, 60))
					return
				}
				read := make([]byte, 60)
				require.NoError(t, end.Get(t.Context(), 0, tag, 0, read))
				require.Equal(t, "a minute of bytes, of which each takes as long as the others", string(read))
			})
		}
		all.Wait()
		require.NoError(t, closeAll(ends))
	})
}

// TestFlippedFrames requires that every changed bit in a control frame is noticed. If a rank ignored an abort because
// of its epoch, the others would wait for its answer forever.
func TestFlippedFrames(t *testing.T) {
	require.Empty(t, tcp.FlippedFrames())
}

// TestSlowFrame lets a frame take longer than Silence while its bytes keep arriving. A writer that gave up in the
// middle of it would send no more heartbeats, and its rank would be lost.
func TestSlowFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go tcp.WriteFrame(near, 10*time.Second, 4<<10)
		received := 0
		for part := make([]byte, 512); received < 4<<10+42; { // headers and checksums of two frames
			require.NoError(t, far.SetReadDeadline(time.Now().Add(20*time.Second)))
			n, err := far.Read(part)
			require.NoError(t, err, "after %d bytes", received)
			received += n
			time.Sleep(4 * time.Second)
		}
	})
}

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

// TestTooManyOpenFiles requires that a rank that accepts no connections for a second ends the step with the
// reason, even if it is rank 0 and the others have not joined.
func TestTooManyOpenFiles(t *testing.T) {
	const reason = " has accepted no connection for 1s: too many open files: let the process open more, as with ulimit -n"
	synctest.Test(t, func(t *testing.T) {
		network := short{&pipes{}, "pipe:1"}
		names := []string{"pipe:0", "pipe:1"}
		ends := joined(t, t.Context(), 2, func(rank int) tcp.Config {
			return tcp.Config{Network: network, Address: names[0], Listen: names[rank]}
		})
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
