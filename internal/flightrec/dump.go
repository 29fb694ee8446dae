package flightrec

// Dump is the flight recorder's dump of one rank.
type Dump struct {
	File    string
	Rank    int // of the job
	Groups  []Group
	Entries []Entry // in the order in which the rank issued them
	// Unjoined contains the status of each group without entries, by the process's own number for
	// the group.
	Unjoined map[int64]Status
}

// Whole reports whether the dump contains the rank's first operation, and therefore its whole
// history.
func (d *Dump) Whole() bool { return len(d.Entries) > 0 && d.Entries[0].Record == 0 }

// Group describes a process group, according to the dump of a rank.
type Group struct {
	Name        string // unique in a job, such as "43"
	Description string // such as "PIPELINE_MODEL_PARALLEL_GROUP"; may be empty
	Ranks       []int  // ranks of the job, in the order of the group; nil if unknown
	Local       int64  // the process's own number for the group, -1 if no entry contains it
	Status      Status
}

// Status is the progress of a rank in a group: the numbers of the last operation that it issued and
// of the last one that completed, -1 if unknown. Transfers complete out of order, so earlier ones
// may be pending.
type Status struct{ Enqueued, Completed int64 }

// Kind is the kind of an entry's operation.
type Kind uint8

// The kinds of entries.
const (
	Collective Kind = iota
	Send
	Recv
)

// Entry is an operation that a rank issued.
type Entry struct {
	Record int64 // counts the operations of the rank, over all groups
	// Number counts the operations of the rank in the group: collectives, which have the
	// same number on all members, or transfers, whose numbers are the rank's own.
	Number int64
	*Call
	Group     int32 // index in Dump.Groups
	Peer      int32 // the rank at the other end of a transfer, numbered in the job; -1 if unknown
	Completed bool
}

// Call describes an operation. A dump stores equal calls once.
type Call struct {
	Kind  Kind
	Name  string // such as "all_reduce"; "send" or "recv" for a transfer
	Sizes string // sizes of the input, such as "4096x1x5120"
	Type  string // type of the input's elements, such as "BFloat16"
}
