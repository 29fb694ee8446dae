package flightrec

// Dump is the flight recorder's dump of one rank.
type Dump struct {
	File    string
	Rank    int // of the job
	Groups  []Group
	Entries []Entry // in the order in which the rank has issued them
	// Unjoined are the states of groups without entries, by the process's own number of the
	// group.
	Unjoined map[int64]Status
}

// Whole reports whether the dump has the first operation of the rank, and so its whole history.
func (d *Dump) Whole() bool { return len(d.Entries) > 0 && d.Entries[0].Record == 0 }

// Group is the description of a process group in the dump of a rank.
type Group struct {
	Name        string // unique in a job: "43"
	Description string // "PIPELINE_MODEL_PARALLEL_GROUP"; may be empty
	Ranks       []int  // of the job, in the order of the group; nil is unknown
	Local       int64  // the process's own number of the group, -1 if no entry says it
	Status      Status
}

// Status is the progress of a rank in a group: the numbers of the last operation that it has issued,
// and of the last one that has completed, -1 if unknown. Transfers complete out of order, so
// earlier ones may be pending.
type Status struct{ Enqueued, Completed int64 }

// Kind is the kind of an entry's operation.
type Kind uint8

// The kinds of entries.
const (
	Collective Kind = iota
	Send
	Recv
)

// Entry is an operation that a rank has issued.
type Entry struct {
	Record int64 // counts the operations of the rank, over all groups
	// Number counts the operations of the rank in the group: collectives, which have the
	// same number on all members, or transfers, whose numbers are the rank's own.
	Number int64
	*Call
	Group     int32 // in Dump.Groups
	Peer      int32 // the rank of the job at the other end of a transfer, -1 if unknown
	Completed bool
}

// Call describes an operation. Equal calls of a dump are stored once.
type Call struct {
	Kind  Kind
	Name  string // "all_reduce"; of transfers "send" or "recv"
	Sizes string // of the input: "4096x1x5120"
	Type  string // of its elements: "BFloat16"
}
