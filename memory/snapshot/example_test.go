package snapshot_test

import (
	"bytes"
	"fmt"

	"github.com/weir-ml/weir/memory/snapshot"
)

// A buffer with the lifetime of one microbatch, in a file that pytorch.org/memory_viz opens.
func Example() {
	const base = 0x7f0000000000
	site := []snapshot.Frame{{Name: "saved:qkv", Filename: "mb3/stage1/F"}}
	s := &snapshot.Snapshot{
		Segments: []snapshot.Segment{{Address: base, Size: 2 << 20, Blocks: []snapshot.Block{
			{Address: base, Size: 2 << 20, State: snapshot.Inactive},
		}}},
		Traces: [][]snapshot.TraceEntry{{
			{Action: snapshot.SegmentAlloc, Address: base, Size: 2 << 20, Time: 0},
			{Action: snapshot.Alloc, Address: base, Size: 1 << 20, Time: 1, Frames: site},
			{Action: snapshot.FreeRequested, Address: base, Size: 1 << 20, Time: 2, Frames: site},
			{Action: snapshot.FreeCompleted, Address: base, Size: 1 << 20, Time: 3, Frames: site},
		}},
	}
	var file bytes.Buffer
	if err := snapshot.Write(&file, s); err != nil {
		fmt.Println(err)
		return
	}
	read, err := snapshot.Read(&file, snapshot.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(read.Traces[0]), "entries, from", read.Traces[0][1].Frames[0].Filename)
	fmt.Println(len(read.Segments), "segment of", read.Segments[0].Size, "bytes")
	// Output:
	// 4 entries, from mb3/stage1/F
	// 1 segment of 2097152 bytes
}
