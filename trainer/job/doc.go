// Package job runs a trainer as a job: the ranks of its pipeline are goroutines of one process,
// or of several processes that meet over sockets or over MPI.
//
// [Flags] registers the flags of a job: which plan a step has, how many ranks and stages, what a
// step may need of memory, where the processes meet, where checkpoints are, and where a run leaves
// its log, its losses and its page ([Folder]) or shows them while it trains ([Watch]). A trainer adds its own flags to the same
// set, calls [Options.Parse] and then [Options.Validate], which reads the files that the flags
// name and proves the plan.
//
// [Options.Meet] returns the place of this process among the others, a [World], or nil if it is
// the only one: then all ranks are goroutines, and the methods of the nil World say so. The devices
// of ranks of other processes are [World.Remote]. After [World.Join] all processes train alike.
// The first one leads: it writes the log, the checkpoints and the page. [World.Step] brings it the
// memory log of the other ranks, [World.Fetching] their weights, and [World.JoinActions] their
// last actions. [World.Settle] makes all processes end the run in the same way.
package job
