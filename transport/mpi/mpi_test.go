//go:build mpi

// The suite needs all ranks in one process, but its bytes must cross processes. Therefore the first process
// hosts the ranks. If there is a second process, every connection goes through it and back.
package mpi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/mpi"
	"github.com/weir-ml/weir/transport/tcp"
	"github.com/weir-ml/weir/transport/transporttest"
)

var world *mpi.World

var late = flag.Duration("late", 0, "no test: the second process ends after this time, and the first waits half as long for MPI to end")

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if world, err = mpi.Start(context.Background(), mpi.Config{Finish: 5 * *late}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	process, processes := world.Process()
	status := 0
	switch {
	case *late > 0: // the others end when this process does
		if process == 0 {
			fmt.Println(world.Close())
			os.Exit(1)
		}
		time.Sleep(*late)
		os.Exit(0)
	case *pings != "":
		err = pingpong(process)
	case process == 0:
		fmt.Printf("%s, %d processes\n", world.Library(), processes)
		status = m.Run()
		if processes > 1 {
			err = stopRelay()
		}
	default:
		err = relay()
	}
	if err = errors.Join(err, world.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// relayAt is the address of the second process. A connection begins with the length of an address
// of the first one, and the address; "" ends the relay.
const relayAt = "mpi:1:1"

func relay() error {
	l, err := world.Listen(relayAt)
	if err != nil {
		return err
	}
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		var size [1]byte
		if _, err = io.ReadFull(near, size[:]); err != nil {
			return err
		}
		to := make([]byte, size[0])
		if _, err = io.ReadFull(near, to); err != nil || len(to) == 0 {
			return errors.Join(err, near.Close(), l.Close())
		}
		far, err := world.Dial(context.Background(), string(to))
		if err != nil {
			return err
		}
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			go func() {
				_, _ = io.Copy(way[1], way[0])
				_, _ = near.Close(), far.Close()
			}()
		}
	}
}

func stopRelay() error {
	conn, err := world.Dial(context.Background(), relayAt)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte{0})
	return errors.Join(err, conn.Close())
}

// crossing is the world of a rank, except that connections to its own process go through the
// second one.
type crossing struct {
	*mpi.World
	mu  sync.Mutex
	all []io.Closer
}

func (c *crossing) notes(one io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

func (c *crossing) Dial(ctx context.Context, address string) (conn net.Conn, err error) {
	if _, processes := c.Process(); processes == 1 {
		conn, err = c.World.Dial(ctx, address)
	} else if conn, err = c.World.Dial(ctx, relayAt); err == nil {
		_, err = conn.Write(append([]byte{byte(len(address))}, address...))
	}
	c.notes(conn)
	return conn, err
}

func (c *crossing) Listen(address string) (net.Listener, error) {
	l, err := c.World.Listen(address)
	c.notes(l)
	return &accepting{l, c}, err
}

type accepting struct {
	net.Listener
	of *crossing
}

func (a *accepting) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil {
		a.of.notes(conn)
	}
	return conn, err
}

// kill closes all connections of the rank, like the end of its process.
func (c *crossing) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		_ = one.Close() // it may be closed already
	}
}

// number is a tensor of one element.
type number *float64

// numbers is the codec of number.
type numbers struct{}

func (numbers) Size(number) int64 { return 8 }

func (numbers) Encode(w io.Writer, h number) error {
	return binary.Write(w, binary.LittleEndian, math.Float64bits(*h))
}

func (numbers) Decode(r io.Reader, _ int64) (number, error) {
	var value float64
	err := binary.Read(r, binary.LittleEndian, &value)
	return &value, err
}

var (
	jobs    int
	reaches sync.Map // the crossing of an endpoint
)

// job joins all ranks of a new job in this process.
func job(ctx context.Context, ranks, capacity int) (ends []transport.Transport[number], end func() error, err error) {
	jobs++
	all, errs := make([]*tcp.Endpoint[number], ranks), make([]error, ranks)
	each := func(f func(rank int)) {
		var wait sync.WaitGroup
		for rank := range ranks {
			wait.Go(func() { f(rank) })
		}
		wait.Wait()
	}
	each(func(rank int) {
		network := &crossing{World: world}
		cfg := tcp.Config{Rank: rank, Ranks: ranks, Network: network, Address: fmt.Sprintf("mpi:0:%d", jobs), Capacity: capacity}
		all[rank], errs[rank] = tcp.Join(ctx, cfg, numbers{})
		reaches.Store(all[rank], network)
	})
	for _, end := range all {
		ends = append(ends, end)
	}
	return ends, func() error {
		each(func(rank int) { errs[rank] = all[rank].Close() })
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

func TestConforms(t *testing.T) {
	transporttest.Run(t, transporttest.Subject[number]{
		New: func(ranks, capacity int) ([]transport.Transport[number], func() error, error) {
			return job(t.Context(), ranks, capacity)
		},
		Kill: func(end transport.Transport[number]) {
			network, _ := reaches.Load(end)
			network.(*crossing).kill()
		},
		Make:    func(_ int, value float64) (number, error) { return &value, nil },
		Read:    func(_ int, h number) (float64, error) { return *h, nil },
		Write:   func(_ int, h number, value float64) error { *h = value; return nil },
		Release: func(int, number) error { return nil },
	})
	require.Eventually(t, func() bool { return world.Held() == 0 }, time.Minute, time.Millisecond, "connections are left")
}

// pair returns both ends of a connection.
func pair(t *testing.T) (near, far net.Conn) {
	l, err := world.Listen("")
	require.NoError(t, err)
	near, err = (&crossing{World: world}).Dial(t.Context(), "mpi:"+l.Addr().String())
	require.NoError(t, err)
	far, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// Bytes arrive in the order of writing, for any lengths of writes and reads, followed by the end.
func TestStream(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	lengths := []int{1, 7, 4 << 10, mpi.Buffer, mpi.Buffer + 1, mpi.Chunk + 1, 20 * mpi.Chunk}
	near, far := pair(t)
	var sent []byte
	for range 40 {
		part := make([]byte, lengths[random.IntN(len(lengths))])
		for i := range part {
			part[i] = byte(random.Uint32())
		}
		sent = append(sent, part...)
	}
	go func() {
		for rest := sent; len(rest) > 0; {
			n, err := near.Write(rest[:min(len(rest), lengths[random.IntN(len(lengths))])])
			if err != nil {
				t.Error(err)
				break
			}
			rest = rest[n:]
		}
		_ = near.Close()
	}()
	sizes := rand.New(rand.NewPCG(seed, 1))
	var got []byte
	for err := error(nil); err == nil; {
		p := make([]byte, lengths[sizes.IntN(len(lengths))])
		var n int
		n, err = far.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
		}
	}
	require.True(t, bytes.Equal(sent, got), "%d bytes of %d", len(got), len(sent))
	require.LessOrEqual(t, world.Held(), int64(4*(mpi.Buffer+mpi.Chunk)))
}

// Close ends current calls on both sides, and releases a long write that is not read.
func TestClose(t *testing.T) {
	near, far := pair(t)
	wrote := make(chan error)
	go func() {
		_, err := near.Write(make([]byte, 3*mpi.Chunk))
		wrote <- err
	}()
	_, err := io.ReadFull(far, make([]byte, 10))
	require.NoError(t, err)
	require.NoError(t, far.Close())
	<-wrote // received and discarded, or an error
	_, err = far.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = near.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	near, _ = pair(t)
	read := make(chan error)
	go func() {
		_, err := near.Read(make([]byte, 1))
		read <- err
	}()
	require.NoError(t, near.SetReadDeadline(time.Now().Add(time.Millisecond)))
	require.ErrorIs(t, <-read, os.ErrDeadlineExceeded)
	require.NoError(t, near.SetReadDeadline(time.Time{}))
	go func() {
		_, err := near.Read(make([]byte, 1))
		read <- err
	}()
	require.NoError(t, near.Close())
	require.ErrorIs(t, <-read, net.ErrClosed)
}

// Without a listener a connection ends, and an invalid address is an error.
func TestAddresses(t *testing.T) {
	conn, err := world.Dial(t.Context(), "mpi:0:99")
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, conn.Close())
	for _, text := range []string{"", "tcp:0:1", "mpi:0", "mpi:7:1", "mpi:-1:1", "mpi:0:1x"} {
		_, err := world.Dial(t.Context(), text)
		require.Error(t, err, text)
	}
	_, err = world.Listen("mpi:0:5")
	require.NoError(t, err)
	_, err = world.Listen("mpi:0:5")
	require.ErrorContains(t, err, "is in use")
	_, err = mpi.Start(t.Context(), mpi.Config{})
	require.ErrorContains(t, err, "start only one World")
}
