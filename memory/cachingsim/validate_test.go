package cachingsim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
)

func TestReal(t *testing.T) {
	files, _ := filepath.Glob("/tmp/h/CS/snap/*")
	for _, f := range files {
		r, _ := os.Open(f)
		s, err := snapshot.Read(r, snapshot.Limits{})
		r.Close()
		if err != nil {
			fmt.Println(filepath.Base(f), err)
			continue
		}
		for d := range s.Traces {
			if len(s.Traces[d]) == 0 {
				continue
			}
			if filepath.Base(f)[:4] == "code" {
				asFork(s)
			}
			fmt.Println(filepath.Base(f), d, follow(s, d))
		}
	}
}

func follow(s *snapshot.Snapshot, d int) string {
	seg, err := s.Rewind(d)
	if err != nil {
		return err.Error()
	}
	trace := s.Traces[d]
	exp := false
	for _, x := range s.Segments {
		if x.Device == d && x.Expandable {
			exp = true
		}
	}
	i := 0
	var places, misplaced, grown int
	a := cachingsim.New(cachingsim.Config{Expandable: exp, MaxSplit: s.Settings.MaxSplit, Place: func(b int64) int64 {
		grown++
		if trace[i].Action == snapshot.SegmentMap && exp || trace[i].Action == snapshot.SegmentAlloc && trace[i].Size == b {
			return trace[i].Address
		}
		misplaced++
		return 0x100000000000 + int64(i)<<32
	}})
	if err := a.Restore(seg); err != nil {
		return err.Error()
	}
	for ; i < len(trace); i++ {
		e := trace[i]
		switch e.Action {
		case snapshot.SegmentFree, snapshot.SegmentUnmap:
			j := i
			for j < len(trace) && trace[j].Action == e.Action {
				j++
			}
			before := a.Stats().Reserved.Current
			var freed int64
			for _, x := range trace[i:j] {
				freed += x.Size
			}
			a.EmptyCache()
			if got := before - a.Stats().Reserved.Current; got != freed {
				return fmt.Sprintf("entry %d: emptied %d, want %d", i, got, freed)
			}
			i = j - 1
		case snapshot.SegmentAlloc, snapshot.SegmentMap:
			// the alloc that follows
			k := i
			for k < len(trace) && trace[k].Action != snapshot.Alloc {
				k++
			}
			if k == len(trace) {
				continue
			}
			at, err := a.Malloc(cachingsim.Request{Bytes: trace[k].Size, Stream: trace[k].Stream})
			places++
			if err != nil || at != trace[k].Address {
				return fmt.Sprintf("entry %d: %x, want %x %v after %d", k, at, trace[k].Address, err, places)
			}
			i = k
		case snapshot.Alloc:
			at, err := a.Malloc(cachingsim.Request{Bytes: e.Size, Stream: e.Stream})
			places++
			if err != nil || at != e.Address {
				return fmt.Sprintf("entry %d: %x, want %x, %d bytes %v after %d", i, at, e.Address, e.Size, err, places)
			}
		case snapshot.FreeRequested:
			if err := a.Retire(e.Address); err != nil {
				return fmt.Sprintf("entry %d: %v", i, err)
			}
		case snapshot.FreeCompleted:
			if err := a.Complete(e.Address); err != nil {
				return fmt.Sprintf("entry %d: %v", i, err)
			}
		}
	}
	// end state
	var want, got int64
	for _, x := range s.Segments {
		if x.Device == d {
			want += x.Size
		}
	}
	got = a.Stats().Reserved.Current
	return fmt.Sprintf("%d allocations at the same address, %d segments, misplaced %d, reserved %d want %d", places, grown, misplaced, got, want)
}

func npu(n int64) int64 {
	n += 32
	return (n + 511) / 512 * 512
}
func asFork(s *snapshot.Snapshot) {
	for d := range s.Traces {
		for i := range s.Traces[d] {
			e := &s.Traces[d][i]
			switch e.Action {
			case snapshot.Alloc, snapshot.FreeCompleted, snapshot.FreeRequested:
				e.Size = npu(e.Size)
			}
		}
	}
	for i := range s.Segments {
		for j := range s.Segments[i].Blocks {
			b := &s.Segments[i].Blocks[j]
			if b.State != snapshot.Inactive {
				b.Requested = npu(b.Requested)
			}
		}
	}
}
