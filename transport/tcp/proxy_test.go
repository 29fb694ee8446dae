package tcp_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
	"github.com/weir-ml/weir/transport/transporttest"
)

// proxy forwards the connections of a listener in pieces of a byte to 4 KiB with delays, so that links overtake
// each other. It can hold back all data, or close the connections.
type proxy struct {
	listener net.Listener
	all      sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
	held     sync.RWMutex // write-locked: no data passes
	drops    atomic.Int64 // number of further connections that are closed immediately
}

// newProxy listens at near, "" for any port, and connects to far.
func newProxy(t testing.TB, near, far string) *proxy {
	t.Helper()
	if near == "" {
		near = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", near)
	require.NoError(t, err)
	p := &proxy{listener: listener}
	p.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if p.drops.Add(-1) >= 0 {
				_ = conn.Close()
				continue
			}
			to, err := net.Dial("tcp", far)
			if err != nil {
				_ = conn.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn, to)
			p.mu.Unlock()
			p.all.Go(func() { p.pipe(conn, to) })
			p.all.Go(func() { p.pipe(to, conn) })
		}
	})
	return p
}

func (p *proxy) pipe(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer[:1+rand.IntN(1<<rand.IntN(13))])
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		}
		p.held.RLock()
		_, failed := to.Write(buffer[:n])
		p.held.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.cut()
	p.all.Wait()
}

// proxied joins ranks. Every connection goes through a proxy of the rank that listens.
func proxied(t testing.TB, ranks, capacity int, silence time.Duration) ([]*tcp.Endpoint[number], []*proxy, error) {
	proxies, listens := make([]*proxy, ranks), make([]string, ranks)
	for rank := range ranks {
		listens[rank] = freePort(t)
		proxies[rank] = newProxy(t, "", strings.TrimPrefix(listens[rank], "tcp:"))
	}
	at := func(rank int) string { return "tcp:" + proxies[rank].listener.Addr().String() }
	ends, err := join(t.Context(), ranks, func(rank int) tcp.Config {
		return tcp.Config{Address: at(0), Listen: listens[rank], Advertise: at(rank), Capacity: capacity, Silence: silence}
	})
	return ends, proxies, err
}

func TestConformsThroughAProxy(t *testing.T) {
	s := subject(t, freePort)
	s.Capacities = []int{0, 3}
	s.New = func(ranks, capacity int) ([]transport.Transport[number], func() error, error) {
		ends, proxies, err := proxied(t, ranks, capacity, 0)
		all, end, err := transports(ends, err)
		return all, func() error {
			err := end()
			for _, p := range proxies {
				p.close()
			}
			return err
		}, err
	}
	transporttest.Run(t, s)
}

// A sender whose greeting was not read, because the listener had too many connections, dials again.
func TestALinkThroughACrowd(t *testing.T) {
	sends := func(ends []*tcp.Endpoint[number]) {
		var all sync.WaitGroup
		tag := transport.Tag{Stage: 1}
		for rank, end := range ends {
			all.Go(func() {
				err := end.Begin(t.Context(), nil)
				if err == nil && rank == 0 {
					if err = end.Send(t.Context(), 1, tag, []number{num(1)}); err == nil {
						err = end.Wait(t.Context(), 1, tag)
					}
				} else if err == nil {
					err = end.Recv(t.Context(), 0, tag, make([]number, 1))
				}
				if err == nil {
					_, err = end.Exchange(t.Context(), nil)
				}
				if err != nil {
					t.Error(err)
				}
				end.Abort(errors.New("the next step dials anew"))
			})
		}
		all.Wait()
	}
	ends, proxies, err := proxied(t, 2, 1, 0)
	require.NoError(t, err)
	proxies[1].drops.Store(3)
	sends(ends)
	require.Less(t, proxies[1].drops.Load(), int64(0), "it has dialed four times")
	require.NoError(t, closeAll(ends))
	for _, p := range proxies {
		p.close()
	}

	at := addresses["unix"](t)
	ends = joined(t, t.Context(), 2, func(int) tcp.Config { return tcp.Config{Address: at, Capacity: 1} })
	for range 10 {
		var all sync.WaitGroup
		for range 200 { // connections without a greeting, while the rank dials
			all.Go(func() {
				conn, err := net.Dial("unix", strings.TrimPrefix(at, "unix:")+".1")
				if err == nil { // otherwise there is no room
					_, _ = conn.Read(make([]byte, 1))
					_ = conn.Close()
				}
			})
		}
		sends(ends)
		defer all.Wait()
	}
	require.NoError(t, closeAll(ends))
}

// If the network of a rank is cut, or blocks all data, all ranks end within the allowed silence,
// and each names the other rank.
func TestANetworkThatFails(t *testing.T) {
	t.Parallel()
	recv := func(end *tcp.Endpoint[number], from int) error {
		return end.Recv(t.Context(), from, transport.Tag{Stage: 1}, make([]number, 1))
	}
	get := func(end *tcp.Endpoint[number], from int) error {
		return end.Get(t.Context(), from, transport.Tag{Stage: 1, Content: transport.Sums}, 0, make([]byte, 1))
	}
	for name, test := range map[string]struct {
		fails   func(p *proxy)
		call    func(end *tcp.Endpoint[number], from int) error
		waiting string
	}{
		"cut":              {(*proxy).cut, recv, "1SEND_F0"},
		"held":             {func(p *proxy) { p.held.Lock() }, recv, "1SEND_F0"},
		"cut in a window":  {(*proxy).cut, get, "1REDUCE_GRAD"},
		"held in a window": {func(p *proxy) { p.held.Lock() }, get, "1REDUCE_GRAD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends, proxies, err := proxied(t, 2, 1, 3*time.Second)
			require.NoError(t, err)
			errs := make([]error, 2)
			var all, begun sync.WaitGroup
			begun.Add(2)
			for rank, end := range ends {
				all.Go(func() {
					errs[rank] = end.Begin(t.Context(), nil)
					if begun.Done(); errs[rank] != nil {
						return
					}
					if begun.Wait(); rank == 0 {
						test.fails(proxies[0])
					}
					errs[rank] = test.call(end, 1-rank)
					end.Abort(errs[rank])
				})
			}
			all.Wait()
			for rank, err := range errs {
				var lost *tcp.LostError
				require.ErrorAs(t, err, &lost)
				require.Equal(t, 1-rank, lost.Rank)
				require.ErrorContains(t, err, "waiting for "+test.waiting+" of rank")
			}
			if strings.HasPrefix(name, "held") {
				proxies[0].held.Unlock()
			}
			require.NoError(t, closeAll(ends))
			for _, p := range proxies {
				p.close()
			}
		})
	}
}
