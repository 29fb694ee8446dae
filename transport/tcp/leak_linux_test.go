package tcp_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// held returns the numbers of goroutines and open files of this process.
func held(t *testing.T) [2]int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return [2]int{runtime.NumGoroutine(), len(files)}
}

// settled waits until this process holds no more than before.
func settled(t *testing.T, before [2]int) {
	t.Helper()
	require.Eventually(t, func() bool {
		now := held(t)
		return now[0] <= before[0]+1 && now[1] <= before[1] // Eventually itself has a goroutine
	}, time.Minute, 5*time.Millisecond, "before %v, now %v", before, held(t))
}

// An aborted step leaves no goroutine and no open file, at whatever point it is aborted, and
// neither does the end of the job.
func TestAbortsLeaveNothing(t *testing.T) {
	const ranks = 3
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the runtime's poller opens files when it is first used
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	for network, address := range addresses {
		t.Run(network, func(t *testing.T) {
			outside := held(t)
			at := address(t)
			ends := joined(t, t.Context(), ranks, func(int) tcp.Config { return tcp.Config{Address: at, Capacity: 2} })
			inside := held(t)
			fails := errors.New("a test")
			percent := debug.SetGCPercent(-1) // the garbage collector would close leaked connections
			defer debug.SetGCPercent(percent)
			for step := range 300 {
				if step == 100 {
					settled(t, inside)
					debug.SetGCPercent(percent)
				}
				var all sync.WaitGroup
				for rank, end := range ends {
					all.Go(func() {
						if err := end.Begin(t.Context(), nil); err != nil {
							t.Errorf("step %d: %v", step, err)
							return
						}
						next, before := (rank+1)%ranks, (rank+ranks-1)%ranks
						for n := 0; ; n++ {
							if rank == step%ranks && n == step%5 {
								end.Abort(fails)
								return
							}
							tag, weights := transport.Tag{Stage: 1, Microbatch: n}, transport.Tag{Content: transport.Weights, Param: n}
							err := end.Expose(weights, make([]byte, 1<<18))
							if err == nil {
								err = end.Get(t.Context(), before, weights, 1<<17, make([]byte, 1<<17))
							}
							if err == nil {
								err = end.Send(t.Context(), next, tag, []number{num(1)})
							}
							if err == nil {
								err = end.Recv(t.Context(), before, tag, make([]number, 1))
							}
							if err == nil {
								err = end.Wait(t.Context(), next, tag)
							}
							if err != nil {
								var remote *tcp.RemoteError
								if !errors.As(err, &remote) || remote.Rank != step%ranks || remote.Error() != fails.Error() {
									t.Errorf("step %d: %v", step, err)
								}
								end.Abort(err)
								return
							}
						}
					})
				}
				all.Wait()
				if t.Failed() {
					break
				}
			}
			settled(t, inside)
			require.NoError(t, closeAll(ends))
			settled(t, outside)
		})
	}
}
