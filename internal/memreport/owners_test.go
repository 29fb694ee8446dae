package memreport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// plan adds a plan's owners at the peak of a rank.
func plan(t *testing.T, log *memreport.Log, owners ...memory.PeakOwner) {
	t.Helper()
	for _, o := range owners {
		require.NoError(t, log.Add(&memlog.Record{Schema: 1, PeakOwner: &o}))
	}
}

// Of several plans the page shows the highest peak of the most important rank, even if a log
// repeats it.
func TestPeakOwners(t *testing.T) {
	log := &memreport.Log{}
	saved := memory.PeakOwner{Rank: 1, Name: "stage 1: saved\x1b of F", Class: memory.Saved, Bytes: 4096, Buffers: 4, First: 2, Last: 5}
	work := memory.PeakOwner{Rank: 1, Name: "stage 1: workspace of B", Class: memory.Workspace, Bytes: 5000, Buffers: 1, First: 2, Last: 2}
	entry := memory.PeakOwner{Rank: 1, Name: "entry", Class: memory.Entry, Bytes: 1, Buffers: 1, First: -1, Last: -1}
	for range 2 { // two runs in one log
		plan(t, log, saved, memory.PeakOwner{Rank: 0, Name: "less", Bytes: 9999})
		require.NoError(t, log.Add(planned(0, 400, 400, 500, 500)))
		require.NoError(t, log.Add(planned(1, 900, 900, 900, 900)))
		saved.Step, work.Step, entry.Step = 1, 1, 1
		plan(t, log, saved, work, entry)
		require.NoError(t, log.Add(planned(1, 900, 900, 900, 900)))
		saved.Step = 2
		plan(t, log, saved)
		saved.Step = 0
	}
	s := log.Summary()
	require.Equal(t, []memreport.Owner{
		{Name: "stage 1: workspace of B", Class: "workspace", Bytes: 5000, Buffers: 1, First: new(2), Last: new(2)},
		{Name: "stage 1: saved\x1b of F", Class: "saved", Bytes: 4096, Buffers: 4, First: new(2), Last: new(5)},
		{Name: "entry", Class: "entry", Bytes: 1, Buffers: 1},
	}, s.Ranks[1].PeakOwners)
	require.Len(t, s.Ranks[0].PeakOwners, 1)

	out := textOf(t, log)
	require.Contains(t, out, `
Owners at the planned peak, rank 1: 8.9 KiB (9,097 bytes), without what is resident:
  bytes                  buffers  class      microbatches  owner
  4.9 KiB (5,000 bytes)  1        workspace  2             stage 1: workspace of B
  4.0 KiB (4,096 bytes)  4        saved      2 to 5        stage 1: saved\x1b of F
  1 B                    1        entry                    entry
`)

	page := pageOf(t, log)
	require.Contains(t, page, "Owners at the planned peak, rank 1")
	require.Contains(t, page, "<td>2 to 5</td>")
	require.NotContains(t, page, "less")
}

// Without a plan the owners follow the steps, and are the owners at the measured peak.
func TestPeakOwnersWithoutAPlan(t *testing.T) {
	log := &memreport.Log{}
	saved := memory.PeakOwner{Name: "stage 0 (a): saved of F", Class: memory.Saved, Bytes: 500, Buffers: 2, First: 0, Last: 1}
	for step := range int64(3) {
		require.NoError(t, log.Add(excessive(step, 0, 0, 0, 0)))
		if saved.Step = step; step < 2 {
			plan(t, log, saved)
			saved.Bytes += 100
		}
	}
	s := log.Summary()
	require.Equal(t, []memreport.Owner{{Name: saved.Name, Class: "saved", Bytes: 600, Buffers: 2, First: new(0), Last: new(1)}}, s.Ranks[0].PeakOwners)
	out := textOf(t, log)
	require.Contains(t, out, "Owners at the peak, rank 0: 600 B, without what is resident:\n")
	page := pageOf(t, log)
	require.Contains(t, page, "Owners at the peak, rank 0")
}

// The memory for a plan does not depend on the number of owners in a log.
func TestPeakOwnersAreBounded(t *testing.T) {
	log := &memreport.Log{}
	require.NoError(t, log.Add(planned(3, 400, 400, 500, 500)))
	for i := range 5000 {
		plan(t, log, memory.PeakOwner{Rank: 3, Name: fmt.Sprint(i, strings.Repeat("x", 1000)), Class: memory.Saved, Bytes: 10, Buffers: 1})
	}
	owners := log.Summary().Ranks[0].PeakOwners
	require.Len(t, owners, 64)
	require.Equal(t, memreport.Owner{Name: "(other names)", Class: "saved", Bytes: 49370, Buffers: 4937}, owners[0])
	require.Less(t, len(owners[1].Name), 210)

	for rank := 4; rank < memreport.MaxRanks+3; rank++ {
		plan(t, log, memory.PeakOwner{Rank: rank})
	}
	require.ErrorIs(t, log.Add(&memlog.Record{Schema: 1, PeakOwner: &memory.PeakOwner{Rank: 1 << 20}}), memreport.ErrRanks)
}
