package tcp_test

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/transporttest"
	"github.com/weir-ml/weir/transport/tcp"
)

// proxy stands before a listener: it hands on what comes in small pieces, late, so that links
// overtake each other, and can hold everything up or cut it off.
type proxy struct {
	listener net.Listener
	all      sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
	held     sync.RWMutex // for writing: nothing passes
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
	buffer := make([]byte, 64)
	for {
		n, err := from.Read(buffer[:1+rand.IntN(len(buffer))])
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

// proxied joins ranks whose every connection goes through a proxy of the rank that listens.
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
	s.New = func(ranks, capacity int) ([]runner.Transport[number], func() error, error) {
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

// The network of a rank is cut, or lets nothing through: all ranks end, within the silence
// that is allowed, and name it.
func TestANetworkThatFails(t *testing.T) {
	for name, fails := range map[string]func(p *proxy){
		"cut":  (*proxy).cut,
		"held": func(p *proxy) { p.held.Lock() },
	} {
		t.Run(name, func(t *testing.T) {
			ends, proxies, err := proxied(t, 2, 1, time.Second)
			require.NoError(t, err)
			errs := make([]error, 2)
			var all sync.WaitGroup
			began := time.Now()
			for rank, end := range ends {
				all.Go(func() {
					if errs[rank] = end.Begin(t.Context()); errs[rank] != nil {
						return
					}
					if rank == 0 {
						time.Sleep(100 * time.Millisecond)
						fails(proxies[0])
					}
					errs[rank] = end.Recv(t.Context(), 1-rank, runner.Tag{Stage: 1}, make([]number, 1))
					end.Abort(errs[rank])
				})
			}
			all.Wait()
			require.Less(t, time.Since(began), 10*time.Second)
			for rank, err := range errs {
				var lost *tcp.LostError
				require.ErrorAs(t, err, &lost)
				require.Equal(t, 1-rank, lost.Rank)
				require.ErrorContains(t, err, "waiting for 1SEND_F0 of rank")
			}
			if name == "held" {
				proxies[0].held.Unlock()
			}
			require.NoError(t, closeAll(ends))
			for _, p := range proxies {
				p.close()
			}
		})
	}
}
