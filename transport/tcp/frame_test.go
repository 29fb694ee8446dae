package tcp_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport/tcp"
)

// TestFlippedFrames: a bit that changes in a control frame is noticed at once. A rank that ignored an abort because of
// its epoch would let the others wait for its answer without end.
func TestFlippedFrames(t *testing.T) {
	require.Empty(t, tcp.FlippedFrames())
}

// TestSlowFrame: a frame may take longer than Silence, as long as its bytes keep arriving. A writer that gave up in
// the middle of it would send no more heartbeats, and its rank would be lost.
func TestSlowFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go tcp.WriteFrame(near, 10*time.Second, 4<<10)
		received := 0
		for part := make([]byte, 512); received < 4<<10+42; { // headers and checksums of two frames
			require.NoError(t, far.SetReadDeadline(time.Now().Add(20*time.Second)))
			n, err := far.Read(part)
			require.NoError(t, err, "after %d bytes", received)
			received += n
			time.Sleep(4 * time.Second)
		}
	})
}
