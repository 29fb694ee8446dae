package costs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

const hops = 400 // round trips of each size

// Hops measures messages between two ranks of this process, on devices of the host: the time of
// the smallest message, and the additional time of a message with one MiB.
func Hops(ctx context.Context) (latency, perMiB time.Duration, err error) {
	var devs [2]*kernels.Host
	for i := range devs {
		if devs[i], err = kernels.NewHost(kernels.HostConfig{}); err != nil {
			return 0, 0, err
		}
		defer devs[i].Close() // all its buffers were released
	}
	links, err := local.New(local.Config[kernels.Buffer]{
		Ranks: len(devs), Capacity: 1,
		Copy: func(from, to int, b kernels.Buffer) (kernels.Buffer, error) {
			return kernels.Transfer(devs[to], devs[from], b)
		},
	})
	if err != nil {
		return 0, 0, err
	}
	defer links.Close() // no call is in progress
	var times [2]time.Duration
	for i, elements := range [...]int{1, 1 << 20 / 4} {
		var took [2][]time.Duration
		var faults [2]error
		var ranks sync.WaitGroup
		for rank, dev := range devs {
			ranks.Go(func() { took[rank], faults[rank] = roundTrips(ctx, links.Rank(rank), dev, rank, elements) })
		}
		ranks.Wait()
		if err := errors.Join(faults[:]...); err != nil {
			return 0, 0, err
		}
		times[i] = median(took[0]) / 2
	}
	return times[0], max(times[1]-times[0], 0), nil
}

// roundTrips does one rank's part of the round trips between two ranks, in which rank 0 sends
// first, and returns their durations as this rank measures them.
func roundTrips(ctx context.Context, end *local.Endpoint[kernels.Buffer], dev *kernels.Host, rank, elements int) (took []time.Duration, err error) {
	message, err := dev.Alloc(memory.Activation, kernels.Float32, elements)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			end.Abort(err) // releases the other rank
		}
		_, released := dev.Release(message)
		err = errors.Join(err, released)
	}()
	if err := errors.Join(dev.Zero(message), end.Begin(ctx, nil)); err != nil {
		return nil, err
	}
	for i := range hops {
		begin := time.Now()
		for sender := range 2 {
			tag := transport.Tag{Content: transport.Content(sender), Stage: sender, Microbatch: i}
			if sender == rank {
				if err = end.Send(ctx, 1-rank, tag, []kernels.Buffer{message}); err == nil {
					err = end.Wait(ctx, 1-rank, tag)
				}
			} else {
				var received [1]kernels.Buffer
				if err = end.Recv(ctx, sender, tag, received[:]); err == nil {
					_, err = dev.Release(received[0])
				}
			}
			if err != nil {
				return nil, err
			}
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}
