//go:build mpi

package mpi_test

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/transport/tcp"
)

// This process has one rank, which joins a job of one rank, and leaves it.
func Example() {
	ctx := context.Background()
	var w tcp.Network = world // from mpi.Start(ctx, mpi.Config{})
	end, err := tcp.Join(ctx, tcp.Config{Rank: 0, Ranks: 1, Network: w, Address: "mpi:0:0"}, numbers{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = end.Begin(ctx, nil)
	all, err := end.Exchange(ctx, []byte("alone"))
	fmt.Printf("%s %v\n", all, err)
	fmt.Println(end.Close())
	// Output:
	// [alone] <nil>
	// <nil>
}
