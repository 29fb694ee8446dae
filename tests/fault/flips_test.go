package fault_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// wire is a network of Unix sockets that flips one bit of the bytes that are written to it.
type wire struct{ left atomic.Int64 } // number of bits until the flip; very large before the network is armed and after the flip

const far = 1 << 60

type wired struct {
	net.Conn
	wire *wire
}

func (w *wire) Listen(address string) (net.Listener, error) {
	l, err := net.Listen("unix", strings.TrimPrefix(address, "unix:"))
	return wiredListener{l, w}, err
}

func (w *wire) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix:"))
	return wired{conn, w}, err
}

type wiredListener struct {
	net.Listener
	wire *wire
}

func (l wiredListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return wired{conn, l.wire}, err
}

func (c wired) Write(b []byte) (int, error) {
	n := 8 * int64(len(b))
	if before := c.wire.left.Add(-n) + n; before >= 0 && before < n {
		b = slices.Clone(b)
		b[before/8] ^= 1 << (before % 8)
	}
	return c.Conn.Write(b)
}

// flip is one experiment: a step of a transformer on two ranks over sockets, in which one bit is flipped.
type flip struct {
	sums  bool
	bit   int64        // on the wire; negative for none
	at    int          // the action of a rank before which a bit of a live buffer is flipped; negative for none
	class memory.Class // of that buffer
}

// run returns the bits of all gradients and losses, the number of bits written to the wire, and the step's error.
func (f flip) run(t *testing.T, rng *rand.Rand) (numbers string, written int64, err error) {
	t.Helper()
	folder, network := t.TempDir(), &wire{}
	network.left.Store(far)
	var devices []*kernels.Host
	var spaces []memory.Space[kernels.Buffer]
	for range 2 {
		dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 4 << 20})
		require.NoError(t, err)
		devices, spaces = append(devices, dev), append(spaces, dev)
	}
	model, err := transformer.NewOn(transformer.Config{Vocabulary: 32, Width: 16, Layers: 2, Heads: 2, Context: 16, Seed: 3}, []kernels.Compute{devices[0], devices[1]})
	require.NoError(t, err)
	ends, faults := make([]*tcp.Endpoint[kernels.Buffer], 2), make([]error, 2)
	var joining sync.WaitGroup
	for rank := range ends {
		joining.Go(func() {
			ends[rank], faults[rank] = tcp.Join(t.Context(), tcp.Config{
				Rank: rank, Ranks: 2, Network: network, Address: filepath.Join(folder, "0"), Listen: filepath.Join(folder, fmt.Sprint(rank)), Capacity: 1, Silence: time.Second, Sums: f.sums,
			}, devices[rank])
		})
	}
	joining.Wait()
	require.NoError(t, errors.Join(faults...))
	done := 0
	run, err := runner.New(runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: spaces, Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Plan:     runner.Plan{Placement: schedule.Looped(2, 2), Rule: schedule.OneFOneB},
		Topology: runner.Topology[kernels.Buffer]{Transport: func(rank int) transport.Transport[kernels.Buffer] { return ends[rank] }},
		Hooks: runner.Hooks{Action: func(rank int, _ schedule.Action) {
			if rank != 1 {
				return
			}
			if done++; done-1 == f.at {
				flipOne(rng, devices[1], f.class)
			}
		}},
	})
	require.NoError(t, err)
	if f.bit >= 0 {
		network.left.Store(f.bit)
	}
	before := network.left.Load()
	result, err := run.Step(t.Context(), 4, runner.PerRank(source(devices[0]), source(devices[1])))
	written = before - network.left.Load()
	if err == nil {
		var b strings.Builder
		fmt.Fprint(&b, result.Losses[0].Sum)
		for _, p := range model.Parameters() {
			fmt.Fprint(&b, p.Name, p.Device.(*kernels.Host).Float32s(p.Grad))
		}
		numbers = b.String()
	}
	require.NoError(t, run.Close())
	for rank := range ends {
		ends[rank].Close()
	}
	require.NoError(t, model.Close())
	for _, dev := range devices {
		require.Zero(t, dev.Live())
		require.NoError(t, dev.Close())
	}
	return numbers, written, err
}

func source(dev *kernels.Host) runner.Source[kernels.Buffer] {
	return runner.Indexed(func(_ context.Context, e batchctx.Entry[kernels.Buffer]) error {
		tokens, weights := make([]int32, 16), make([]float32, 16)
		for i := range tokens {
			tokens[i], weights[i] = int32(7*i+e.Index())%32, 1
		}
		transformer.Put(dev, e, tokens, tokens, weights)
		return nil
	})
}

// flipOne flips a bit of a buffer of the class, if there is one.
func flipOne(rng *rand.Rand, dev *kernels.Host, class memory.Class) {
	var all []memory.Info
	for info := range dev.All() {
		if info.Class == class {
			all = append(all, info)
		}
	}
	if len(all) == 0 {
		return
	}
	one := all[rng.IntN(len(all))]
	x := dev.Float32s(kernels.Buffer{Handle: one.Handle, N: int(one.Bytes / 4)})
	i := rng.IntN(len(x))
	x[i] = math.Float32frombits(math.Float32bits(x[i]) ^ 1<<rng.IntN(32))
}

// TestFlips flips bits on the wire and in memory. A step with checksums ends with an error, or with the
// numbers of a run without a flip, wherever on the wire the bit was. Without checksums, some steps end with
// other numbers.
func TestFlips(t *testing.T) {
	testkit.Slow(t)
	count := 40
	if *testkit.Long {
		count = 1000
	}
	rng := rand.New(rand.NewPCG(47, 2))
	want, bits, err := flip{bit: -1, at: -1, sums: true}.run(t, rng)
	require.NoError(t, err)
	for _, sums := range []bool{false, true} {
		found := map[string]int{}
		for range count {
			numbers, _, err := flip{bit: rng.Int64N(bits), at: -1, sums: sums}.run(t, rng)
			found[verdict(err, numbers == want)]++
		}
		t.Logf("checksums %v, %d bits of %d on the wire flipped: %v", sums, count, bits, found)
		if sums {
			require.Zero(t, found["other numbers"])
			require.NotZero(t, found["checksum"])
		} else {
			require.NotZero(t, found["other numbers"])
		}
	}
	for _, class := range []memory.Class{memory.Entry, memory.Saved, memory.Transfer, memory.Resident} {
		found := map[string]int{}
		for range count / 4 {
			numbers, _, err := flip{bit: -1, at: rng.IntN(20), class: class, sums: true}.run(t, rng)
			found[verdict(err, numbers == want)]++
		}
		t.Logf("a bit of class %v in memory flipped %d times: %v", class, count/4, found)
	}
}

// verdict says what detected a flip.
func verdict(err error, same bool) string {
	_, tag := errors.AsType[*transport.TagError](err)
	switch {
	case err == nil && same:
		return "no effect"
	case err == nil:
		return "other numbers"
	case errors.Is(err, transport.ErrSum), strings.Contains(err.Error(), transport.ErrSum.Error()): // another rank's error is its text
		return "checksum"
	case tag:
		return "tag"
	case errors.Is(err, tcp.ErrFrame):
		return "frame"
	case errors.Is(err, tcp.ErrSilent):
		return "silence"
	}
	return "another error"
}
