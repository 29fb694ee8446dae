package tcp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport/tcp"
)

// TestFlippedFrames: a bit that changes in a control frame is noticed at once. A rank that ignored an abort because of
// its epoch would let the others wait for its answer without end.
func TestFlippedFrames(t *testing.T) {
	require.Empty(t, tcp.FlippedFrames())
}
