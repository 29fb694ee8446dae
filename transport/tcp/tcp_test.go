package tcp_test

import (
	"cmp"
	"context"
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

// addresses returns the address of a new job, by network.
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
	ends, err := join(t.Context(), 3, func(int) tcp.Config {
		return tcp.Config{Network: network, Address: "elsewhere:first"}
	})
	require.NoError(t, err)
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
