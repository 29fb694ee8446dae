package flightrec

// Dump is the flight recorder's dump of one rank.
type Dump struct {
	File       string
	Rank       int // of the job
	Groups     []Group
	Operations []Operation // in the order in which the rank issued them
	// Unjoined contains the status of each group without entries, by the process's own number for
	// the group.
	Unjoined map[int64]Status
	// Complete means that the dump contains all operations from its first one on. A dump of only the pending
	// operations does not.
	Complete bool
	// Hooked means that FlightRecorderHook wrote the dump, so PyTorch is 2.15 or newer.
	Hooked bool
	// Unclosed means that operations were taken as completed because the dump lacks the end of their batch.
	Unclosed bool
	// Backend names a backend that does not report when operations end, or when transfers in batches do; "" if
	// there is none.
	Backend string
	Newer   string // the version of the dump, if it is newer than those that are known; else ""
	first   bool   // the dump has the rank's first operation
}

// Whole reports whether the dump contains the rank's whole history.
func (d *Dump) Whole() bool { return d.Complete && d.first }

// Group describes a process group, according to the dump of a rank.
type Group struct {
	Name        string // unique in a job, such as "43"
	Description string // such as "PIPELINE_MODEL_PARALLEL_GROUP"; may be empty
	Ranks       []int  // ranks of the job, in the order of the group; nil if unknown
	Local       int64  // the process's own number for the group, -1 if no entry contains it
	Status      Status
	// Uncounted means that numbers of the group's collectives also count an unknown number of batches.
	Uncounted bool
}

// Status is the progress of a rank in a group: the numbers of the last operation that it issued and
// of the last one that completed, -1 if unknown. In a group with transfers, the numbers may be those of
// transfers, of collectives, or of both. Transfers complete out of order, so earlier ones may be pending.
type Status struct{ Enqueued, Completed int64 }

// OpKind is the kind of an operation.
type OpKind uint8

// The kinds of operations.
const (
	Collective OpKind = iota
	Send
	Recv
)

// Operation is an operation that a rank issued.
type Operation struct {
	Record int64 // counts the operations of the rank, over all groups
	// Number counts the operations of the rank in the group: collectives, which have the
	// same number on all members, or transfers, whose numbers are the rank's own.
	Number int64
	*Call
	Group     int32 // index in Dump.Groups
	Peer      int32 // the rank at the other end of a transfer, numbered in the job; -1 if it may be any member
	Batch     int32 // equal for the operations of a batch, which end together; 0 outside batches
	Completed bool
	Unseen    bool // the end is inferred: the recorder did not see it
}

// Call describes an operation. A dump stores equal calls once.
type Call struct {
	Kind  OpKind
	Name  string // such as "all_reduce"; "send" or "recv" for a transfer
	Sizes string // sizes of the input, such as "4096x1x5120"; of the output for an all_gather, or if there is no input
	Type  string // type of the elements, such as "BFloat16"
}
