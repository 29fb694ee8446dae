// Package mpi carries the bytes of a job over MPI: its [World] is a [tcp.Network], and ranks join
// over it with [tcp.Join]. Package tcp does everything else: the order of a job, tags, receipts,
// aborts, the comparison of facts, heartbeats. Weir computes all sums, never MPI.
//
// Without the build tag mpi the package is only this file. With the tag the build needs cgo and
// the compiler of the MPI library:
//
//	CC=mpicc go build -tags mpi ./examples/train
//	mpirun -n 4 ./train -transport mpi
//
// It has run with Open MPI 4.1 and 5.0 and MPICH 4.0 and 4.2, on Linux.
//
// # Ownership
//
//   - A World owns the process's MPI, and its own communicator. It uses
//     MPI_THREAD_SERIALIZED: every call is under the lock of the World, on any thread; start and
//     end are on one thread, as MPI requires.
//   - A goroutine of the World polls MPI for arrived messages and completed requests. After an
//     event it polls without a pause (Config.Spin), then yields in between (Yield), then sleeps (Sleep).
//   - A connection is a stream in both directions: two tags between two processes, so MPI keeps
//     its order. An empty message ends a direction. Messages that arrive after a Close are received
//     and discarded, so that the other side's writes end.
//   - A write of at most [Buffer] bytes is copied and in flight when Write returns. A longer one
//     is sent from the caller's memory, in messages of at most [Chunk] bytes, and Write returns
//     when they are received. All sends are synchronous (MPI_Issend): an unread message
//     stays with its sender, and MPI keeps only its header at the receiver.
//   - A receiver reads a message into the caller's memory or, if that is too
//     small, into a buffer of the connection. A connection therefore holds at most Buffer and Chunk
//     bytes; [World.Held] counts them.
//
// # Failure
//
// MPI cannot continue a job that has lost a process, and its launcher ends the job. If a process
// has not received pending messages within [Drain] after the end of a connection, the World
// fails: it makes no further call of MPI, so that nothing reads or writes the job's memory, and
// Close omits MPI_Finalize. Signal handlers are Go's, as before the start.
package mpi
