package tcp_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// A transfer allocates nothing.
func TestTransfersAllocateNothing(t *testing.T) {
	if testkit.Raced {
		t.Skip("pools forget at random")
	}
	transfer := transfers(t)
	transfer(10_000) // see testkit.Allocations
	few := testkit.Allocations(func() { transfer(10) })
	require.Equal(t, few, testkit.Allocations(func() { transfer(500) }, few))
}

// transfers returns a function that sends n tensors of 4 KiB.
func transfers(t testing.TB) func(n int) {
	devs, ends, errs := make([]*kernels.Host, 2), make([]*tcp.Endpoint[kernels.Buffer], 2), make([]error, 2)
	at := addresses["unix"](t)
	var all sync.WaitGroup
	for rank := range ends {
		var err error
		devs[rank], err = kernels.NewHost(kernels.HostConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = devs[rank].Close() })
		all.Go(func() {
			ends[rank], errs[rank] = tcp.Join(t.Context(), tcp.Config{Rank: rank, Ranks: 2, Address: at, Capacity: 1, Silence: -1}, devs[rank])
		})
	}
	all.Wait()
	require.Equal(t, make([]error, 2), errs)
	t.Cleanup(func() {
		for _, end := range ends {
			all.Go(func() { _ = end.Close() })
		}
		all.Wait()
	})
	ctx := context.Background()
	h, err := devs[0].Alloc(memory.Activation, kernels.Float32, 1<<10)
	require.NoError(t, err)
	require.NoError(t, devs[0].Zero(h))
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
			require.NoError(t, ends[0].Send(ctx, 1, tag, sent))
			require.NoError(t, ends[0].Wait(ctx, 1, tag))
		}
		all.Wait()
	}
}
