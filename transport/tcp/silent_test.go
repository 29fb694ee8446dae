package tcp_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// pair is the network of a rank. While cut is set, nothing passes between ranks 1 and 2; both still
// reach rank 0.
type pair struct {
	*pipes
	rank int
	cut  *atomic.Bool
}

func (p pair) Dial(ctx context.Context, name string) (net.Conn, error) {
	conn, err := p.pipes.Dial(ctx, name)
	if err == nil && p.rank > 0 && name != "pipe:0" {
		conn = cuttable{conn, p.cut}
	}
	return conn, err
}

// cuttable loses data in both directions while it is cut, and reports nothing, as a socket does.
type cuttable struct {
	net.Conn
	cut *atomic.Bool
}

func (c cuttable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c cuttable) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.cut.Load() {
			return n, err
		}
	}
}

// When the network between two ranks fails, a rank that waits for the other one notices after Config.Silence,
// although rank 0 hears from both. This holds for every kind of wait. All ranks get an error that names the
// pair. While the network works, a rank may wait for longer.
func TestSilentLink(t *testing.T) {
	sums := transport.Tag{Stage: 1, Content: transport.Sums}
	use := func(t *testing.T, end *tcp.Endpoint[number], rank, m int) { // makes the connections
		tag := transport.Tag{Stage: 1, Microbatch: m}
		if rank == 1 {
			require.NoError(t, end.Send(t.Context(), 2, tag, []number{num(1)}))
			require.NoError(t, end.Wait(t.Context(), 2, tag))
		} else {
			require.NoError(t, end.Recv(t.Context(), 1, tag, make([]number, 1)))
		}
	}
	read := func(t *testing.T, end *tcp.Endpoint[number], rank, param int) {
		tag := sums
		tag.Param = param
		if rank == 1 {
			require.NoError(t, end.Expose(tag, []byte{7}))
			require.NoError(t, end.Withdraw(t.Context(), tag, 1))
		} else {
			require.NoError(t, end.Get(t.Context(), 1, tag, 0, make([]byte, 1)))
		}
	}
	for name, waits := range map[string]func(end *tcp.Endpoint[number], rank int) error{
		"Recv": func(end *tcp.Endpoint[number], rank int) error {
			if rank == 1 {
				time.Sleep(time.Hour)
				return errors.New("late")
			}
			return end.Recv(context.Background(), 1, transport.Tag{Stage: 1, Microbatch: 9}, make([]number, 1))
		},
		"Wait": func(end *tcp.Endpoint[number], rank int) error {
			if rank == 2 {
				time.Sleep(time.Hour)
				return errors.New("late")
			}
			tag := transport.Tag{Stage: 1, Microbatch: 9}
			if err := end.Send(context.Background(), 2, tag, []number{num(1)}); err != nil {
				return err
			}
			return end.Wait(context.Background(), 2, tag)
		},
		"Get": func(end *tcp.Endpoint[number], rank int) error {
			if rank == 1 {
				time.Sleep(time.Hour)
				return errors.New("late")
			}
			return end.Get(context.Background(), 1, sums, 0, make([]byte, 1))
		},
		"Withdraw": func(end *tcp.Endpoint[number], rank int) error {
			if rank == 2 {
				return end.Get(context.Background(), 1, sums, 0, make([]byte, 1))
			}
			if err := end.Expose(sums, []byte{1}); err != nil {
				return err
			}
			return end.Withdraw(context.Background(), sums, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, cut := &pipes{}, new(atomic.Bool)
				ends := joined(t, t.Context(), 3, func(rank int) tcp.Config {
					return tcp.Config{Network: pair{network, rank, cut}, Address: "pipe:0", Listen: []string{"pipe:0", "pipe:1", "pipe:2"}[rank], Capacity: 1}
				})
				errs, took := make([]error, 3), make([]time.Duration, 3)
				var all sync.WaitGroup
				for rank, end := range ends {
					all.Go(func() {
						require.NoError(t, end.Begin(t.Context(), nil))
						var began time.Time
						if rank > 0 {
							use(t, end, rank, 0)
							read(t, end, rank, 1)
							if rank == 1 {
								time.Sleep(2 * time.Minute) // the network works
							}
							use(t, end, rank, 1)
							if rank == 1 {
								time.Sleep(2 * time.Minute)
							}
							read(t, end, rank, 2)
							time.Sleep(time.Second)
							cut.Store(true)
							began = time.Now()
							errs[rank] = waits(end, rank)
						} else {
							began = time.Now().Add(4 * time.Minute)
							_, errs[rank] = end.Exchange(t.Context(), nil)
						}
						took[rank] = time.Since(began)
						end.Abort(errs[rank])
					})
				}
				all.Wait()
				for rank, err := range errs {
					if err.Error() == "late" {
						continue
					}
					require.Regexp(t, "a connection is silent: rank (1 has received nothing from rank 2|2 has received nothing from rank 1) for 10s: check the network", err.Error())
					require.Less(t, took[rank], 15*time.Second)
				}
				cut.Store(false)
				for rank, end := range ends { // the next step works
					all.Go(func() {
						require.NoError(t, end.Begin(t.Context(), nil))
						if rank > 0 {
							use(t, end, rank, 0)
							read(t, end, rank, 1)
						}
						_, err := end.Exchange(t.Context(), nil)
						require.NoError(t, err)
					})
				}
				all.Wait()
				require.NoError(t, closeAll(ends))
			})
		})
	}
}
