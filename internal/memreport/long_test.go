package memreport_test

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/memlog"
)

// The memory for a log does not grow with its records: there are ten million with -long, and rank
// 3 leaks 16 bytes a microbatch from step 30,000 on.
func TestMemoryIsBounded(t *testing.T) {
	testkit.Slow(t)
	steps, begin := 1_000, 750
	if *testkit.Long {
		steps, begin = 39_063, 30_000
	}
	lines, out := io.Pipe()
	go func() {
		w, leak := bufio.NewWriter(out), 0
		for step := range steps {
			for mb := range 64 {
				if step >= begin {
					leak += 16
				}
				for rank := range 4 {
					fmt.Fprintf(w, `{"step":%d,"rank":%d,"microbatch":%d,"allocated":%d,"reserved":2000000000,"peak":1900000000}`+"\n", step, rank, mb, 1<<30+leak*(rank/3))
				}
			}
		}
		out.CloseWithError(w.Flush())
	}()
	log := &memreport.Log{}
	var heap runtime.MemStats
	for record, err := range memlog.Read(lines) {
		require.NoError(t, err)
		require.NoError(t, log.Add(&record))
		if log.Records()%250_000 == 0 {
			runtime.ReadMemStats(&heap)
			require.Less(t, heap.HeapAlloc, uint64(32<<20), "after %d records", log.Records())
		}
	}
	s := log.Summary()
	require.EqualValues(t, steps*64*4, s.Records)
	require.Equal(t, 3, *s.GrowthRank)
	require.Equal(t, 16.0, s.Growth.PerMicrobatch)
	require.LessOrEqual(t, s.Growth.First.Step, int64(begin))
	require.GreaterOrEqual(t, s.Growth.First.LastStep, int64(begin))
}
