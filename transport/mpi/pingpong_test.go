//go:build mpi

package mpi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

var pings = flag.String("pingpong", "", "`folder` for a socket: measure two processes in place of the tests")

// pingpong prints half of a round trip over MPI, Unix sockets and TCP, as the least mean of five rounds. It
// also prints the processor time of a process that waits in Recv for five seconds. For each network, this time
// includes the goroutine that polls MPI.
func pingpong(process int) error {
	ctx := context.Background()
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return err
	}
	defer dev.Close()
	for _, name := range []string{"mpi", "unix", "tcp"} {
		cfg := map[string]tcp.Config{
			"mpi":  {Network: world, Address: "mpi:0:0"},
			"unix": {Address: "unix:" + filepath.Join(*pings, "job")},
			"tcp":  {Address: "tcp:127.0.0.1:29511"},
		}[name]
		cfg.Rank, cfg.Ranks, cfg.Capacity = process, 2, 1
		end, err := tcp.Join(ctx, cfg, dev)
		if err != nil {
			return err
		}
		if err := end.Begin(ctx, nil); err != nil {
			return err
		}
		other, m, got := 1-process, 0, make([]kernels.Buffer, 1)
		recv := func() error {
			if err := end.Recv(ctx, other, transport.Tag{Microbatch: m, Stage: other}, got); err != nil {
				return err
			}
			_, err := dev.Release(got[0])
			return err
		}
		for _, bytes := range []int{8, 4 << 10, 1 << 20, 16 << 20} {
			h, err := dev.Alloc(memory.Activation, kernels.Float32, bytes/4)
			if err == nil {
				err = dev.Zero(h)
			}
			if err != nil {
				return err
			}
			send := func() error {
				tag := transport.Tag{Microbatch: m, Stage: process}
				return errors.Join(end.Send(ctx, other, tag, []kernels.Buffer{h}), end.Wait(ctx, other, tag))
			}
			first, second := send, recv
			if process == 1 {
				first, second = recv, send
			}
			n, best := 2000, time.Hour
			if bytes > 1<<16 {
				n = 50
			}
			for range 5 {
				start := time.Now()
				for range n {
					m++
					if err := errors.Join(first(), second()); err != nil {
						return err
					}
				}
				best = min(best, time.Since(start)/time.Duration(2*n))
			}
			if process == 0 {
				fmt.Printf("%-10s %9d B %10.1f us %6.2f GB/s\n", name, bytes, best.Seconds()*1e6, float64(bytes)/best.Seconds()/1e9)
			}
			if _, err := dev.Release(h); err != nil {
				return err
			}
		}
		m++
		h, err := dev.Alloc(memory.Activation, kernels.Float32, 2)
		if err != nil {
			return err
		}
		const idle = 5 * time.Second
		if process == 1 {
			time.Sleep(idle)
			tag := transport.Tag{Microbatch: m, Stage: 1}
			err = errors.Join(end.Send(ctx, other, tag, []kernels.Buffer{h}), end.Wait(ctx, other, tag))
		} else {
			before := used()
			err = recv()
			fmt.Printf("%-10s waiting takes %.2f %% of a processor\n", name, float64(used()-before)/float64(idle)*100)
		}
		if _, released := dev.Release(h); err != nil || released != nil {
			return errors.Join(err, released)
		}
		if err := end.Close(); err != nil {
			return err
		}
	}
	return nil
}

// used returns the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // this call cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
