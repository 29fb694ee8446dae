package tcp_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// Two ranks, here in one process, send a tensor. A runner uses the endpoint of its rank as
// Topology.Transport in the same way.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ends, err := join(ctx, 2, func(int) tcp.Config {
		return tcp.Config{Address: "unix:" + filepath.Join(folder, "job"), Token: "secret"}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tag := transport.Tag{Stage: 0, Microbatch: 5}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = ends[0].Begin(ctx, nil)
		_ = ends[0].Send(ctx, 1, tag, []number{num(42)})
		_ = ends[0].Wait(ctx, 1, tag)
	}()
	h := make([]number, 1)
	_ = ends[1].Begin(ctx, nil)
	_ = ends[1].Recv(ctx, 0, tag, h)
	fmt.Println(tag, *h[0])
	<-done
	_ = closeAll(ends)
	// Output: 0SEND_F5 of step 0 42
}
