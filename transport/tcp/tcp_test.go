package tcp_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
	"github.com/weir-ml/weir/transport/transporttest"
)

func TestMain(m *testing.M) { testkit.RunWaiting(m) }

// number is a tensor of one element.
type number *float64

func num(value float64) number { return &value }

// numbers is the codec of number.
type numbers struct{}

func (numbers) Size(number) int64 { return 8 }

func (numbers) Encode(w io.Writer, h number) error {
	return binary.Write(w, binary.LittleEndian, math.Float64bits(*h))
}

func (numbers) Decode(r io.Reader, size int64) (number, error) {
	if size != 8 {
		return nil, io.ErrUnexpectedEOF
	}
	var bits uint64
	err := binary.Read(r, binary.LittleEndian, &bits)
	return num(math.Float64frombits(bits)), err
}

// freePort returns a free address on loopback.
func freePort(t testing.TB) string {
	t.Helper()
	return "tcp:" + testkit.FreePort(t)
}

// addresses holds, by network, a function that returns the address of a new job.
var addresses = map[string]func(t testing.TB) string{
	"unix": func(t testing.TB) string { return "unix:" + filepath.Join(t.TempDir(), "job") },
	"tcp":  freePort,
}

// join joins all ranks of a job in this process, and returns their errors.
func join(ctx context.Context, ranks int, config func(rank int) tcp.Config) ([]*tcp.Endpoint[number], error) {
	ends, errs := make([]*tcp.Endpoint[number], ranks), make([]error, ranks)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			cfg := config(rank)
			cfg.Rank, cfg.Ranks = rank, ranks
			if ends[rank], errs[rank] = tcp.Join(ctx, cfg, numbers{}); errs[rank] != nil {
				cancel() // the others would wait for it
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return ends, nil
}

// closeAll closes the endpoints, which wait for each other.
func closeAll(ends []*tcp.Endpoint[number]) (err error) {
	var all sync.WaitGroup
	errs := make([]error, len(ends))
	for i, end := range ends {
		all.Go(func() { errs[i] = end.Close() })
	}
	all.Wait()
	for _, one := range errs {
		if one != nil {
			err = one
		}
	}
	return err
}

// transports converts the results of join for a subject's New.
func transports(ends []*tcp.Endpoint[number], err error) ([]transport.Transport[number], func() error, error) {
	var all []transport.Transport[number]
	for _, end := range ends {
		all = append(all, end)
	}
	return all, func() error { return closeAll(ends) }, err
}

func subject(t testing.TB, address func(testing.TB) string) transporttest.Subject[number] {
	return transporttest.Subject[number]{
		New: func(ranks, capacity int) ([]transport.Transport[number], func() error, error) {
			at := address(t)
			return transports(join(t.Context(), ranks, func(int) tcp.Config {
				return tcp.Config{Address: at, Capacity: capacity, Token: "a job", Sums: ranks%2 == 0}
			}))
		},
		Kill:    func(end transport.Transport[number]) { end.(*tcp.Endpoint[number]).Kill() },
		Make:    func(_ int, value float64) (number, error) { return num(value), nil },
		Read:    func(_ int, h number) (float64, error) { return *h, nil },
		Write:   func(_ int, h number, value float64) error { *h = value; return nil },
		Release: func(int, number) error { return nil },
	}
}

func TestConforms(t *testing.T) {
	for network, address := range addresses {
		t.Run(network, func(t *testing.T) { transporttest.Run(t, subject(t, address)) })
	}
}

// elsewhere is a Network of Unix sockets that counts dialed connections.
type elsewhere struct {
	folder string
	dialed atomic.Int64
}

func (e *elsewhere) Listen(address string) (net.Listener, error) {
	return net.Listen("unix", filepath.Join(e.folder, cmp.Or(strings.TrimPrefix(address, "elsewhere:"), fmt.Sprint(rand.Uint64()))))
}

func (e *elsewhere) Dial(ctx context.Context, address string) (net.Conn, error) {
	e.dialed.Add(1)
	_, path, _ := strings.Cut(address, ":")
	if !filepath.IsAbs(path) {
		path = filepath.Join(e.folder, path)
	}
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// With another network the ranks join at its addresses, and links are dialed there.
func TestNetwork(t *testing.T) {
	network := &elsewhere{folder: t.TempDir()}
	ends := joined(t, t.Context(), 3, func(int) tcp.Config {
		return tcp.Config{Network: network, Address: "elsewhere:first"}
	})
	joined := network.dialed.Load()
	require.GreaterOrEqual(t, joined, int64(2))
	var all sync.WaitGroup
	tag := transport.Tag{Microbatch: 1}
	for rank, end := range ends {
		all.Go(func() {
			assert.NoError(t, end.Begin(t.Context(), nil))
			h := []number{num(5)}
			switch rank {
			case 1:
				assert.NoError(t, end.Send(t.Context(), 2, tag, h))
				assert.NoError(t, end.Wait(t.Context(), 2, tag))
			case 2:
				assert.NoError(t, end.Recv(t.Context(), 1, tag, h))
			}
		})
	}
	all.Wait()
	require.Equal(t, joined+1, network.dialed.Load())
	require.NoError(t, closeAll(ends))
}

// The clock of a rank's host jumps. Waits do not depend on it, so the job goes on over the connections
// that it has. A rank whose clock is outside the validity of the certificates neither connects nor
// joins, and its error says why.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	right := certificates(t)
	var ahead atomic.Int64
	jumping := right.Clone()
	jumping.Time = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	clocks := []*tls.Config{right, jumping}
	at := freePort(t)
	ends := joined(t, t.Context(), 2, func(rank int) tcp.Config {
		return tcp.Config{Address: at, Capacity: 1, Silence: time.Second, TLS: clocks[rank]}
	})
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
	err := sends(1) // dials
	require.ErrorContains(t, err, "rank 1 connects to rank 0")
	require.ErrorContains(t, err, "certificate has expired or is not yet valid")
	require.NoError(t, closeAll(ends))

	at = freePort(t)
	errs := meet(t, tcp.Config{Ranks: 2, Address: at, TLS: right, Meeting: time.Second}, tcp.Config{Rank: 1, Ranks: 2, Address: at, TLS: jumping, Meeting: time.Second})
	require.ErrorIs(t, errs[0], tcp.ErrMissing)
	require.ErrorContains(t, errs[0], "have not joined: 1")
	require.ErrorContains(t, errs[1], "certificate has expired or is not yet valid")
}

// joined returns the endpoints of ranks that must all join.
func joined(t require.TestingT, ctx context.Context, ranks int, config func(rank int) tcp.Config) []*tcp.Endpoint[number] {
	ends, err := join(ctx, ranks, config)
	require.NoError(t, err)
	return ends
}
