package snapshot

// Snapshot is the memory of every device at one time, and what led there. All sizes
// and addresses are bytes.
type Snapshot struct {
	Segments []Segment // ascending in addresses
	Traces   [][]Entry // by device
	Settings Settings
}

// Segment is one range that an allocator got from the driver. Where it expands, it is
// one contiguous mapped range.
type Segment struct {
	Device     int
	Address    int64
	Size       int64
	Stream     int64
	Small      bool     // of the pool for small sizes
	Pool       [2]int64 // of a private pool; zero for the common one
	Expandable bool
	Frames     []Frame // where it was got
	Blocks     []Block // in order; they tile the segment
}

// Block is a part of a segment.
type Block struct {
	Address   int64
	Size      int64
	Requested int64 // what was asked for; at most Size
	State     State
	Frames    []Frame // where it was allocated
}

// State is what a block is.
type State string

// The states of a block.
const (
	Live     State = "active_allocated"
	Pending  State = "active_pending_free" // freed, but a stream may still use it
	Inactive State = "inactive"
)

// Entry is one event of a trace.
type Entry struct {
	Action  Action
	Address int64 // for OutOfMemory the bytes that the device had free
	Size    int64 // as asked for, or that of a segment
	Stream  int64
	Time    int64 // microseconds
	Frames  []Frame
}

// Action is what an entry of a trace tells.
type Action string

// The actions. A trace may hold others, which say nothing about memory.
const (
	Alloc         Action = "alloc"
	FreeRequested Action = "free_requested"
	FreeCompleted Action = "free_completed"
	SegmentAlloc  Action = "segment_alloc"
	SegmentFree   Action = "segment_free"
	SegmentMap    Action = "segment_map"
	SegmentUnmap  Action = "segment_unmap"
	OutOfMemory   Action = "oom"
)

// Frame is one line of a call stack, innermost first in a list of them. Lists are
// shared: events of one place have the same one.
type Frame struct {
	Name     string
	Filename string
	Line     int
}

// Settings are those of the allocator that the snapshot is of.
type Settings struct {
	Conf       string // PYTORCH_CUDA_ALLOC_CONF
	Expandable bool
	MaxSplit   int64 // bytes; 0 or less where blocks of any size are split
}

// Sizes are sums over the blocks of a segment.
type Sizes struct {
	Allocated int64 // in live blocks
	Active    int64 // in live and pending blocks
	Requested int64 // that was asked for, of the active ones
}

// Sizes returns the sums over the segment's blocks.
func (s *Segment) Sizes() Sizes {
	var sizes Sizes
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.State == Live {
			sizes.Allocated += b.Size
		}
		if b.State != Inactive {
			sizes.Active += b.Size
			sizes.Requested += b.Requested
		}
	}
	return sizes
}

// End is the address behind the segment.
func (s *Segment) End() int64 { return s.Address + s.Size }
