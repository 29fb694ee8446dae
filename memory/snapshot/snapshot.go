package snapshot

// Snapshot is the memory of every device at one moment, with the preceding events. All sizes and
// addresses are in bytes.
type Snapshot struct {
	Segments []Segment      // of each device in ascending order of addresses, as PyTorch writes them
	Traces   [][]TraceEntry // by device
	Settings Settings
}

// Segment is a range that an allocator got from the driver. If it is expandable, it is one
// contiguous mapped range.
type Segment struct {
	Device     int
	Address    int64
	Size       int64
	Stream     int64
	Small      bool     // from the pool for small sizes
	Pool       [2]int64 // ID of a private pool; zero for the common pool
	Expandable bool
	Frames     []Frame // call stack of its allocation
	Blocks     []Block // in order; they tile the segment
}

// Block is a part of a segment.
type Block struct {
	Address   int64
	Size      int64
	Requested int64 // requested size; Size if the file does not have it
	State     State
	Frames    []Frame // call stack of its allocation
}

// State is the state of a block.
type State string

// The states of a block.
const (
	Live     State = "active_allocated"
	Pending  State = "active_pending_free" // freed, but a stream may still use it
	Inactive State = "inactive"
)

// TraceEntry is one event of a trace.
type TraceEntry struct {
	Action  Action
	Address int64 // for OutOfMemory, the free bytes of the device
	Size    int64 // requested size, or the size of a segment
	Stream  int64
	Time    int64 // microseconds
	Frames  []Frame
}

// Action is the kind of an entry of a trace.
type Action string

// The actions. A trace may contain others, which do not affect memory.
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

// Frame is one line of a call stack. Lists of frames begin with the innermost one, and are shared: events
// with the same call stack have the same list.
type Frame struct {
	Name     string
	Filename string
	Line     int
}

// Settings are the settings of the snapshot's allocator.
type Settings struct {
	Conf       string // PYTORCH_CUDA_ALLOC_CONF
	Expandable bool
	MaxSplit   int64 // bytes; 0 or less if blocks of any size are split
}

// Sizes holds sums over the blocks of a segment.
type Sizes struct {
	Allocated int64 // in live blocks
	Active    int64 // in live and pending blocks
	Requested int64 // requested bytes of the active blocks
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

// End returns the address just past the segment.
func (s *Segment) End() int64 { return s.Address + s.Size }
