package cachingsim_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/tests/rewind"
)

var snapshots = flag.String("snapshots", "", "a folder of memory snapshots of PyTorch on CUDA, with traces")

// TestRealHistories replays the histories of real allocators. It rewinds the trace of each
// snapshot to its beginning, starts a simulated allocator with the segments at that time, makes
// the same requests, and requires for each the address of the real allocator, new segments of
// the same sizes at the same time, and the same blocks at the end.
func TestRealHistories(t *testing.T) {
	if *snapshots == "" {
		t.Skip("give -snapshots FOLDER")
	}
	files, err := filepath.Glob(filepath.Join(*snapshots, "*"))
	require.NoError(t, err)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			file, err := os.Open(name)
			require.NoError(t, err)
			defer file.Close()
			s, err := snapshot.Read(file, snapshot.Limits{})
			require.NoError(t, err)
			for device, trace := range s.Traces {
				if len(trace) > 0 {
					before, err := rewind.Segments(s, device)
					require.NoError(t, err)
					h := history{trace: trace}
					require.NoError(t, h.replay(s, device, before))
					t.Logf("device %d: %d allocations, %d new segments, %d times the cache was emptied: all as in the file", device, h.allocations, h.segments, h.emptied)
				}
			}
		})
	}
}

// history is a trace that is replayed on a simulated allocator.
type history struct {
	trace                          []snapshot.TraceEntry
	at                             int
	allocations, segments, emptied int
	misplaced                      error
}

// place returns the address that the driver returned in the history. If the size is another one, it sets
// misplaced and returns an unused address.
func (h *history) place(bytes int64) int64 {
	e := &h.trace[h.at]
	if e.Action != snapshot.SegmentMap && (e.Action != snapshot.SegmentAlloc || e.Size != bytes) {
		h.misplaced = fmt.Errorf("entry %d: a segment of %d bytes, but the history has %s of %d", h.at, bytes, e.Action, e.Size)
		return 1<<50 + int64(h.at)<<30
	}
	h.segments++
	return e.Address
}

func (h *history) replay(s *snapshot.Snapshot, device int, before []snapshot.Segment) error {
	segments := slices.DeleteFunc(slices.Clone(s.Segments), func(g snapshot.Segment) bool { return g.Device != device })
	expandable := slices.ContainsFunc(segments, func(g snapshot.Segment) bool { return g.Expandable })
	a := cachingsim.New(cachingsim.Config{Expandable: expandable, MaxSplit: s.Settings.MaxSplit, Place: h.place})
	if err := a.Restore(before); err != nil {
		return err
	}
	for ; h.at < len(h.trace); h.at++ {
		if err := h.step(a); err != nil {
			return err
		}
		if h.misplaced != nil {
			return h.misplaced
		}
	}
	return sameBlocks(segments, a.Snapshot().Segments)
}

// step replays one entry, or the entries of one request of a program.
func (h *history) step(a *cachingsim.Allocator) error {
	switch e := h.trace[h.at]; e.Action {
	case snapshot.SegmentAlloc, snapshot.SegmentMap, snapshot.Alloc:
		asked := h.at // the request follows the segments that it needs
		for h.trace[asked].Action != snapshot.Alloc {
			if asked++; asked == len(h.trace) {
				return fmt.Errorf("entry %d: the trace ends before the request that needs the segment", h.at)
			}
		}
		request := h.trace[asked]
		address, err := a.Malloc(cachingsim.Request{Bytes: request.Size, Stream: request.Stream})
		if err != nil || address != request.Address {
			return fmt.Errorf("entry %d: %d bytes got %#x, in the history %#x; %w", asked, request.Size, address, request.Address, err)
		}
		h.at = asked
		h.allocations++
	case snapshot.FreeRequested:
		return a.Retire(e.Address)
	case snapshot.FreeCompleted:
		return a.Complete(e.Address)
	case snapshot.SegmentFree, snapshot.SegmentUnmap:
		reserved := a.Stats().Reserved.Current
		for ; h.at < len(h.trace) && h.trace[h.at].Action == e.Action; h.at++ {
			reserved -= h.trace[h.at].Size
		}
		h.at--
		h.emptied++
		if a.EmptyCache(); a.Stats().Reserved.Current != reserved {
			return fmt.Errorf("entry %d: %d bytes stay when the cache is emptied, in the history %d", h.at, a.Stats().Reserved.Current, reserved)
		}
	}
	return nil
}

// sameBlocks compares segments block by block.
func sameBlocks(want, got []snapshot.Segment) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d segments in the end, in the file %d", len(got), len(want))
	}
	for i := range want {
		w, g := &want[i], &got[i]
		if w.Address != g.Address || w.Size != g.Size || w.Small != g.Small || len(w.Blocks) != len(g.Blocks) {
			return fmt.Errorf("segment %#x has %d bytes in %d blocks, in the file %#x has %d in %d", g.Address, g.Size, len(g.Blocks), w.Address, w.Size, len(w.Blocks))
		}
		for k := range w.Blocks {
			a, b := &w.Blocks[k], &g.Blocks[k]
			if a.Address != b.Address || a.Size != b.Size || a.State != b.State {
				return fmt.Errorf("block %#x has %d bytes, %s; in the file %#x has %d, %s", b.Address, b.Size, b.State, a.Address, a.Size, a.State)
			}
		}
	}
	return nil
}
