package local_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// Rank 0 sends a number to rank 1, which receives a copy.
func Example() {
	links, _ := local.New(local.Config[*float64]{Ranks: 2, Capacity: 1, Copy: func(_, _ int, h *float64) (*float64, error) {
		made := *h
		return &made, nil
	}})
	defer links.Close()
	ctx, tag := context.Background(), transport.Tag{Microbatch: 3}
	var ranks sync.WaitGroup
	ranks.Go(func() {
		end, x := links.Rank(0), 2.5
		_ = end.Begin(ctx, nil)
		_ = end.Send(ctx, 1, tag, []*float64{&x})
		_ = end.Wait(ctx, 1, tag)
	})
	ranks.Go(func() {
		end, h := links.Rank(1), make([]*float64, 1)
		_ = end.Begin(ctx, nil)
		_ = end.Recv(ctx, 0, tag, h)
		fmt.Println(tag, *h[0])
	})
	ranks.Wait()
	// Output: 0SEND_F3 of step 0 2.5
}
