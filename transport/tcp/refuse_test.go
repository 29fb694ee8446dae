package tcp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
	"github.com/weir-ml/weir/transport/transporttest"
)

// meet joins ranks with faulty configurations, and returns the error of each.
func meet(t *testing.T, cfgs ...tcp.Config) []error {
	t.Helper()
	errs := make([]error, len(cfgs))
	var all sync.WaitGroup
	for i, cfg := range cfgs {
		all.Go(func() {
			end, err := tcp.Join(t.Context(), cfg, numbers{})
			if errs[i] = err; err == nil {
				errs[i] = errors.Join(errors.New("it has joined"), end.Close())
			}
		})
	}
	all.Wait()
	return errs
}

func TestJoinRefuses(t *testing.T) {
	rank := func(number int, change func(*tcp.Config)) tcp.Config {
		c := tcp.Config{Rank: number, Ranks: 3, Token: "a", Meeting: 4 * time.Second, Facts: []tcp.Fact{{Name: "-width", Value: "48"}, {Name: "the plan", Value: "1f1b"}}}
		if change != nil {
			change(&c)
		}
		return c
	}
	for name, test := range map[string]struct {
		ranks []tcp.Config
		want  []error  // by process
		says  []string // by process
	}{
		"a rank is missing": {[]tcp.Config{rank(0, nil), rank(2, nil)},
			[]error{tcp.ErrMissing, tcp.ErrMissing}, []string{"after 4s these of 3 ranks have not joined: 1", "have not joined: 1"}},
		"rank 0 is missing": {[]tcp.Config{rank(2, nil)}, []error{tcp.ErrMissing}, []string{"rank 0 does not answer at"}},
		"another token": {[]tcp.Config{rank(0, nil), rank(1, nil), rank(2, func(c *tcp.Config) { c.Token = "b" })},
			[]error{tcp.ErrMissing, tcp.ErrMissing, tcp.ErrRefused},
			[]string{"have not joined: 2 (", "was refused: the token is not the token of this job", "the token is not the token of this job"}},
		"two with one number": {[]tcp.Config{rank(0, nil), rank(1, nil), rank(1, nil)},
			[]error{tcp.ErrRefused, tcp.ErrRefused, tcp.ErrRefused}, []string{"two processes are rank 1", "two processes are rank 1", "two processes are rank 1"}},
		"another model": {[]tcp.Config{rank(0, nil), rank(1, func(c *tcp.Config) {
			c.Facts = []tcp.Fact{{Name: "-width", Value: "64"}, {Name: "the plan", Value: "x"}}
		})},
			[]error{tcp.ErrRefused, tcp.ErrRefused}, []string{"-width is 64 on rank 1 and 48 on rank 0", "-width is 64 on rank 1 and 48 on rank 0"}},
		"fewer facts": {[]tcp.Config{rank(0, nil), rank(1, func(c *tcp.Config) { c.Facts = c.Facts[:1] })},
			[]error{tcp.ErrRefused, tcp.ErrRefused}, []string{"rank 1 does not state its the plan", "the plan"}},
		"another number of ranks": {[]tcp.Config{rank(0, nil), rank(1, func(c *tcp.Config) { c.Ranks = 4 })},
			[]error{tcp.ErrRefused, tcp.ErrRefused}, []string{"rank 1 is of 4 ranks, rank 0 of 3", "rank 1 is of 4 ranks"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &pipes{}
				for i := range test.ranks {
					c := &test.ranks[i]
					c.Network, c.Address, c.Listen = network, "pipe:0", fmt.Sprint("pipe:", c.Rank)
				}
				for i, err := range meet(t, test.ranks...) {
					require.ErrorIs(t, err, test.want[i], "process %d", i)
					require.ErrorContains(t, err, test.says[i], "process %d", i)
				}
			})
		})
	}
}

// newer dials connections whose greeting has the next version of the protocol.
type newer struct{ *pipes }

type newerConn struct{ net.Conn }

func (n newer) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := n.pipes.Dial(ctx, address)
	return newerConn{conn}, err
}

func (c newerConn) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("WEIR")) {
		b = bytes.Clone(b)
		b[4]++
	}
	return c.Conn.Write(b)
}

// TestAnotherProtocol refuses a rank with another version of the protocol. Both ranks name both versions.
func TestAnotherProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{}
		cfg := func(rank int, through tcp.Network) tcp.Config {
			return tcp.Config{Rank: rank, Ranks: 2, Token: "a", Network: through, Address: "pipe:0", Listen: fmt.Sprint("pipe:", rank), Meeting: 4 * time.Second}
		}
		for rank, err := range meet(t, cfg(0, network), cfg(1, newer{network})) {
			require.ErrorIs(t, err, []error{tcp.ErrMissing, tcp.ErrRefused}[rank])
			require.ErrorContains(t, err, "rank 0 speaks version 7 of the protocol, this rank version 8: run the same build everywhere")
		}
	})
}

// TestALateRankIsToldWhy lets a rank join after the meeting has failed because of another rank, or
// has succeeded.
func TestALateRankIsToldWhy(t *testing.T) {
	why := fmt.Errorf("%w: -seed is 2 on rank 1 and 1 on rank 0", tcp.ErrRefused)
	require.Equal(t, why.Error(), tcp.LateAnswer(why))
	require.Contains(t, tcp.LateAnswer(nil), "the job has begun")
}

func TestValidate(t *testing.T) {
	for fault, cfg := range map[string]tcp.Config{
		"0 ranks":                           {Address: "unix:/x"},
		"rank 2 of 2":                       {Rank: 2, Ranks: 2, Address: "unix:/x"},
		"capacity -2":                       {Ranks: 1, Address: "unix:/x", Capacity: -2},
		"a silence of 5ns":                  {Ranks: 1, Address: "unix:/x", Silence: 5},
		"a stall of 5ns":                    {Ranks: 1, Address: "unix:/x", Stall: 5},
		"the path has 121 bytes":            {Ranks: 1, Address: "unix:/" + strings.Repeat("x", 120)},
		"give unix:PATH":                    {Ranks: 1, Address: "http://x"},
		"missing port":                      {Ranks: 1, Address: "tcp:127.0.0.1"},
		"tcp:10.0.0.1:5 is not on loopback": {Ranks: 1, Address: "tcp:10.0.0.1:5"},
		"tcp::5 is not on loopback":         {Ranks: 1, Address: "tcp:127.0.0.1:5", Listen: "tcp::5"},
	} {
		require.ErrorContains(t, cfg.Validate(), fault)
	}
	require.NoError(t, (&tcp.Config{Ranks: 1, Address: "tcp:10.0.0.1:5", Insecure: true}).Validate())
	var none context.Context
	for _, ctx := range []context.Context{none, t.Context()} {
		_, err := tcp.Join[int](ctx, tcp.Config{Ranks: 1, Address: freePort(t)}, nil)
		require.ErrorContains(t, err, "tcp: the context or the codec of Join is nil")
	}
}

// Strangers occupy the port with garbage, silence, another version, greetings without the token,
// and huge lengths. The job still meets, and keeps nothing of them.
func TestStrangers(t *testing.T) {
	at := freePort(t)
	goroutines := runtime.NumGoroutine()
	var ends []*tcp.Endpoint[number]
	joined := make(chan error, 1)
	host := tcp.Config{Rank: 0, Ranks: 2, Address: at, Token: "a job"}
	go func() {
		end, err := tcp.Join(t.Context(), host, numbers{})
		ends = append(ends, end)
		joined <- err
	}()
	dial := func() net.Conn {
		var conn net.Conn
		require.Eventually(t, func() (ok bool) {
			c, err := net.Dial("tcp", strings.TrimPrefix(at, "tcp:"))
			conn = c
			return err == nil
		}, time.Minute, 5*time.Millisecond)
		return conn
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 300 {
		conn := dial()
		defer conn.Close()
		var said []byte
		switch i % 4 {
		case 0: // no bytes
		case 1:
			said = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("x", 1000))
		case 2:
			said = append(tcp.Greeting(2, "another job"), 255, 255)
		case 3:
			said = append(tcp.Greeting(2, "a job")[:38], 255, 255, 255, 255)
		}
		_, _ = conn.Write(said) // it may be closed already
	}
	version := dial()
	_, err := version.Write(tcp.Greeting(9, "a job"))
	require.NoError(t, err)
	answer, err := io.ReadAll(version)
	require.NoError(t, err)
	require.Contains(t, string(answer), "rank 0 speaks version 7 of the protocol, this rank version 9")
	require.NoError(t, version.Close())

	end, err := tcp.Join(t.Context(), tcp.Config{Rank: 1, Ranks: 2, Address: at, Token: "a job"}, numbers{})
	require.NoError(t, err)
	require.NoError(t, <-joined)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	require.NoError(t, closeAll(append(ends, end)))
	for tries := 0; runtime.NumGoroutine() > goroutines && tries < 10000; tries++ {
		time.Sleep(5 * time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
}

func FuzzBytes(f *testing.F) {
	f.Add([]byte("WEIR"))
	f.Add(tcp.Greeting(2, "t"))
	f.Add(append([]byte{9, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0}, "null"...))
	f.Add([]byte{6, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(_ *testing.T, data []byte) { tcp.Parse(data, "t") })
}

// certificates returns the certificates of a new job.
func certificates(t *testing.T) *tls.Config {
	folder := filepath.Join(t.TempDir(), "certs")
	require.NoError(t, tcp.WriteCerts(folder, time.Hour))
	require.Error(t, tcp.WriteCerts(folder, time.Hour), "it is there")
	c, err := tcp.LoadTLS(folder)
	require.NoError(t, err)
	return c
}

// No rank joins without certificates, or with another job's.
func TestOtherCertificates(t *testing.T) {
	for name, second := range map[string]*tls.Config{"another job's": certificates(t), "none": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, ours := freePort(t), certificates(t)
			errs := meet(t, tcp.Config{Ranks: 2, Address: at, TLS: ours, Meeting: time.Second},
				tcp.Config{Rank: 1, Ranks: 2, Address: at, TLS: second, Meeting: time.Second})
			require.ErrorIs(t, errs[0], tcp.ErrMissing)
			require.Error(t, errs[1])
			require.NotContains(t, errs[1].Error(), "it has joined")
		})
	}
}

// A job with certificates conforms too.
func TestCertificates(t *testing.T) {
	ours := certificates(t)
	near, far := net.Pipe()
	conn := tls.Client(near, ours)
	go func() { _ = tls.Server(far, ours).Handshake() }()
	require.NoError(t, conn.Handshake())
	tcp.Cut(conn)
	left, err := io.ReadAll(far)
	require.NoError(t, err)
	require.Empty(t, left, "it has waited until somebody reads a last word")

	s := subject(t, freePort)
	s.New = func(ranks, capacity int) ([]transport.Transport[number], func() error, error) {
		at := freePort(t)
		return transports(join(t.Context(), ranks, func(int) tcp.Config { return tcp.Config{Address: at, Capacity: capacity, TLS: ours} }))
	}
	s.Capacities = []int{1}
	transporttest.Run(t, s)
}
