// Package mpi carries the bytes of a job over MPI. Its [World] is a [tcp.Network], over which ranks
// join with [tcp.Join]. Package tcp does everything else: it orders the events of a job, checks tags,
// confirms messages, aborts steps, compares facts and sends heartbeats. MPI computes no sums.
//
// Without the build tag mpi the package consists only of this file. With the tag the build needs cgo
// and the compiler of the MPI library:
//
//	CC=mpicc go build -tags mpi ./examples/train
//	mpirun -n 4 ./train -transport mpi
//
// It has run with Open MPI 4.1 and 5.0 and MPICH 4.0 and 4.2, on Linux.
//
// # Ownership
//
//   - A World owns MPI in its process, and has its own communicator. It uses MPI_THREAD_SERIALIZED:
//     calls of MPI run on any thread, but only under the lock of the World. It starts and ends MPI on
//     one thread, as MPI requires.
//   - A goroutine of the World polls MPI for arrived messages and completed requests. After an
//     event it polls without a pause (Config.Spin), then yields between polls (Yield), then sleeps
//     between polls (Sleep).
//   - A connection is a stream in both directions. Each direction has its own tag between two
//     processes, for which MPI keeps the order of messages. An empty message ends a direction. After
//     a Close the World receives and discards messages, so that the other side's writes end.
//   - A Write of at most [Buffer] bytes copies them and returns while they are in flight. A longer
//     Write sends from the caller's memory, in messages of at most [Chunk] bytes, and returns when
//     they have been received. All sends are synchronous (MPI_Issend): an unread message stays with
//     its sender, and MPI keeps only its header at the receiver.
//   - A Read receives a message into the caller's memory or, if that is too small, into a buffer of
//     the connection. A connection therefore holds at most Buffer and Chunk bytes; [World.Held]
//     counts them.
//
// # Failure
//
// MPI cannot continue a job that has lost a process, and its launcher ends the job. If a process
// has not received pending messages within [Drain] after the end of a connection, the World fails:
// it does not call MPI any longer, so that MPI does not read or write the job's memory, and Close
// omits MPI_Finalize. Start leaves Go's signal handlers in place.
package mpi
