package memory_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

// StillReachable counts the tensors of a recorded step that are still reachable, each once, and
// their bytes.
func TestSurvivors(t *testing.T) {
	s := memory.NewLeakTrackingSpace(func(*tensor) memory.Class { return memory.Saved }, func(t *tensor) int64 { return int64(len(t.data)) })
	var kept []*tensor
	step := func(handed int) {
		kept = nil
		mark := s.Mark()
		for i := range handed {
			h := &tensor{data: make([]byte, 100+i)}
			for range 2 { // it is held, unheld, and held again
				_, err := s.Hold(h)
				require.NoError(t, err)
				_, err = s.Unhold(h)
				require.NoError(t, err)
			}
			if _, err := s.Release(h); i%2 == 1 {
				require.NoError(t, err)
				kept = append(kept, h)
			}
		}
		s.Reclaim(mark)
	}
	for i, watched := range []bool{true, true, true, false, true} { // steps 0, 1, 2, 4, 8, ...
		step(4)
		if watched {
			handles, bytes := s.StillReachable()
			require.Equal(t, []int64{2, 101 + 103}, []int64{int64(handles), bytes}, "step %d", i)
		}
	}
	step(2) // is not recorded
	handles, _ := s.StillReachable()
	require.Zero(t, handles, "the tensors of the last recorded step are gone")
	runtime.KeepAlive(kept)
}
