// Package mpi carries the bytes of a job over MPI: its [World] is a [tcp.Network], and ranks
// join over it with [tcp.Join]. All but the bytes is package tcp's: the order of a job, tags,
// receipts, aborts, the facts that are compared, heartbeats. Sums are Weir's, never MPI's.
//
// This file is all of the package in a build without the tag mpi. With it the build needs cgo,
// and the compiler of the MPI library:
//
//	CC=mpicc go build -tags mpi ./examples/train
//	mpirun -n 4 ./train -transport mpi
//
// It was run with Open MPI 4.1 and 5.0 and MPICH 4.0 and 4.2, on Linux.
//
// # Who owns what
//
//   - A World has the process's one MPI, and a communicator of its own. It takes
//     MPI_THREAD_SERIALIZED: every call is under the lock of the World, on any thread; start and
//     end are on one thread, as MPI demands.
//   - A goroutine of the World asks MPI for what has come and what is done. After an event it asks
//     again at once (Config.Spin), then lets others run in between (Yield), then it sleeps (Sleep).
//   - A connection is a stream in both directions: two tags between two processes, so MPI keeps
//     its order. A message of no bytes ends a direction, and what comes after a Close is received
//     and thrown away, so that the other side's writes end.
//   - A write of at most [Buffer] bytes is copied and on its way when Write returns. A longer one
//     goes out of the caller's memory, in messages of at most [Chunk] bytes, and Write returns
//     when they are received. All sends are synchronous (MPI_Issend): a message that nobody reads
//     stays with its sender, so MPI holds a header of it at the receiver.
//   - A receiver reads a message into the memory that it is read for, or, where that is too
//     small, into a buffer of the connection. So a connection holds at most Buffer and Chunk
//     bytes; [World.Held] counts them.
//
// # Failure
//
// A job that has lost a process cannot go on with MPI, and its launcher ends it. If a process
// has not taken what was sent to it for [Drain] after the end of a connection, the World fails:
// it makes no call of MPI any more, so nothing reads or writes the job's memory, and Close leaves
// out MPI_Finalize. Handlers of signals are those from before the start: Go's.
package mpi
