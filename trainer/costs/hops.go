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
		player := func(rank int) *player { return &player{links.Rank(rank), devs[rank], rank, elements} }
		if times[i], err = rally(ctx, player(0), player(1)); err != nil {
			return 0, 0, err
		}
	}
	return times[0], max(times[1]-times[0], 0), nil
}

// rally sends a message back and forth and returns the median time of one direction.
func rally(ctx context.Context, a, b *player) (time.Duration, error) {
	var faults [2]error
	var took []time.Duration
	var players sync.WaitGroup
	players.Go(func() { took, faults[0] = a.play(ctx) })
	players.Go(func() { _, faults[1] = b.play(ctx) })
	players.Wait()
	return median(took) / 2, errors.Join(faults[:]...)
}

// player is one end of a rally. Rank 0 begins each turn.
type player struct {
	*local.Endpoint[kernels.Buffer]
	dev      *kernels.Host
	rank     int
	elements int
}

// play plays all turns and returns their durations.
func (p *player) play(ctx context.Context) (took []time.Duration, err error) {
	ball, err := p.dev.Alloc(memory.Activation, kernels.Float32, p.elements)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.Abort(err) // releases the other player
		}
		_, released := p.dev.Release(ball)
		err = errors.Join(err, released)
	}()
	if err := errors.Join(p.dev.Zero(ball), p.Begin(ctx, nil)); err != nil {
		return nil, err
	}
	for i := range hops {
		begin := time.Now()
		for _, serves := range [...]bool{p.rank == 0, p.rank == 1} {
			if serves {
				err = p.serve(ctx, i, ball)
			} else {
				err = p.take(ctx, i)
			}
			if err != nil {
				return nil, err
			}
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// serve sends the ball, and keeps it until it has arrived.
func (p *player) serve(ctx context.Context, turn int, ball kernels.Buffer) error {
	tag, other := p.tag(p.rank, turn), 1-p.rank
	if err := p.Send(ctx, other, tag, []kernels.Buffer{ball}); err != nil {
		return err
	}
	return p.Wait(ctx, other, tag)
}

// take receives the other player's ball, and releases it.
func (p *player) take(ctx context.Context, turn int) error {
	var ball [1]kernels.Buffer
	if err := p.Recv(ctx, 1-p.rank, p.tag(1-p.rank, turn), ball[:]); err != nil {
		return err
	}
	_, err := p.dev.Release(ball[0])
	return err
}

// tag returns the tag of the ball of a rank in a turn.
func (p *player) tag(rank, turn int) transport.Tag {
	return transport.Tag{Content: transport.Content(rank), Stage: rank, Microbatch: turn}
}
