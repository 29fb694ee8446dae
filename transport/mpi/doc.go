// Package mpi carries a job's bytes over MPI. Its [World] is a [tcp.Network], over which ranks join
// with [tcp.Join]. Package tcp does everything else: it orders a job's events, checks tags, confirms
// messages, aborts steps, compares facts and sends heartbeats. MPI is not used to compute sums.
//
// Without the build tag mpi the package consists only of this file. With the tag the build needs cgo
// and the MPI library's compiler wrapper:
//
//	CC=mpicc go build -tags mpi ./examples/train
//	mpirun -n 4 ./train -transport mpi
//
// It has been run with Open MPI 4.1 and 5.0 and with MPICH 4.0 and 4.2, on Linux.
//
// # Ownership
//
//   - A World owns MPI in its process, and has its own communicator. It uses MPI_THREAD_SERIALIZED:
//     any thread may call MPI, but only while holding the World's lock. It starts and ends MPI on one
//     thread, as MPI requires.
//   - A goroutine of the World polls MPI for arrived messages and completed requests. After an event
//     it first polls without pausing (Config.Spin), then yields between polls (Yield), and finally
//     sleeps between polls (Sleep).
//   - A connection is a bidirectional stream. Each direction has its own tag between the two
//     processes; MPI preserves the order of messages with the same tag. An empty message ends a
//     direction. After a Close the World receives and discards messages, so that the other side's
//     writes end.
//   - A Write of at most [Buffer] bytes copies them and may return while they are still in flight. A
//     longer Write sends from the caller's memory, in messages of at most [Chunk] bytes, and returns
//     when they have been received. All sends are synchronous (MPI_Issend): an unread message stays
//     with its sender, and MPI keeps only its header at the receiver.
//   - A Read receives a message into the caller's memory or, if that is too small, into a buffer of
//     the connection. A connection therefore holds at most Buffer plus Chunk bytes; [World.Held]
//     counts them.
//
// # Failure
//
// MPI cannot continue a job that has lost a process, so its launcher ends the job. If a process has not
// received pending messages within [Drain] after the end of a connection, the World fails: it no longer calls
// MPI, so that MPI does not read or write the job's memory, and Close omits MPI_Finalize. MPI_Finalize waits
// for every process, even for one that has exited without calling it, so the World also fails if MPI_Finalize
// does not return in time. Start leaves Go's signal handlers in place.
package mpi
