package tcp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
	"github.com/weir-ml/weir/transport/tcp"
)

// BenchmarkTransfer sends a tensor to another rank and waits until it has been received: one
// operation is a message and its confirmation.
func BenchmarkTransfer(b *testing.B) {
	for _, network := range []string{"links", "unix", "tcp"} {
		for _, bytes := range []int{8, 4 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%d", network, bytes), func(b *testing.B) {
				transfer := transfers(b, network, bytes)
				b.SetBytes(int64(bytes))
				b.ReportAllocs()
				b.ResetTimer()
				transfer(b.N)
			})
		}
	}
}

// A transfer allocates nothing.
func TestTransfersAllocateNothing(t *testing.T) {
	if testkit.Raced {
		t.Skip("pools forget at random")
	}
	transfer := transfers(t, "unix", 4<<10)
	transfer(10_000) // see testkit.Allocations
	few := testkit.Allocations(func() { transfer(10) })
	require.Equal(t, few, testkit.Allocations(func() { transfer(500) }, few))
}

// transfers returns a function that sends n tensors.
func transfers(b testing.TB, network string, bytes int) func(n int) {
	devs := make([]*kernels.Host, 2)
	for rank := range devs {
		var err error
		devs[rank], err = kernels.NewHost(kernels.HostConfig{})
		require.NoError(b, err)
		b.Cleanup(func() { _ = devs[rank].Close() })
	}
	ends := make([]transport.Transport[kernels.Buffer], 2)
	var all sync.WaitGroup
	if network == "links" {
		links, err := local.New(local.Config[kernels.Buffer]{Ranks: 2, Capacity: 1, Stall: -1,
			Copy: func(from, to int, h kernels.Buffer) (kernels.Buffer, error) {
				return kernels.Transfer(devs[to], devs[from], h)
			}})
		require.NoError(b, err)
		b.Cleanup(func() { _ = links.Close() })
		ends[0], ends[1] = links.Rank(0), links.Rank(1)
	} else {
		at, joined, errs := addresses[network](b), make([]*tcp.Endpoint[kernels.Buffer], 2), make([]error, 2)
		for rank := range joined {
			all.Go(func() {
				joined[rank], errs[rank] = tcp.Join(b.Context(), tcp.Config{Rank: rank, Ranks: 2, Address: at, Capacity: 1, Silence: -1}, devs[rank])
			})
		}
		all.Wait()
		for rank, end := range joined {
			require.NoError(b, errs[rank])
			ends[rank] = end
		}
		b.Cleanup(func() {
			for _, end := range joined {
				all.Go(func() { _ = end.Close() })
			}
			all.Wait()
		})
	}
	ctx := context.Background()
	h, err := devs[0].Alloc(memory.Activation, kernels.Float32, bytes/4)
	require.NoError(b, err)
	require.NoError(b, devs[0].Zero(h))
	for _, end := range ends {
		all.Go(func() { _ = end.Begin(ctx, nil) })
	}
	all.Wait()
	sent, got := []kernels.Buffer{h}, make([]kernels.Buffer, 1)
	return func(n int) {
		all.Go(func() {
			for m := range n {
				if ends[1].Recv(ctx, 0, transport.Tag{Microbatch: m}, got) != nil {
					return
				}
				_, _ = devs[1].Release(got[0])
			}
		})
		for m := range n {
			tag := transport.Tag{Microbatch: m}
			require.NoError(b, ends[0].Send(ctx, 1, tag, sent))
			require.NoError(b, ends[0].Wait(ctx, 1, tag))
		}
		all.Wait()
	}
}
