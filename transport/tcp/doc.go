// Package tcp joins ranks in several processes, on one host or on many, over the sockets of the
// standard library: Unix sockets within a host, TCP between hosts. An [Endpoint] is a
// [transport.Transport]; package transporttest tests its contract.
//
// # Ownership
//
//   - Rank 0 is the meeting point. Every other rank has one control connection to it, for
//     the beginnings of steps, exchanges, aborts and heartbeats. The hub of rank 0
//     puts them in one order, which all ranks see: an exchange is complete
//     or the step is aborted, never both.
//   - A link, one direction between two ranks, has its own connection, dialed by the
//     sender when it first sends. Pairs that the plan does not use have none.
//   - The sender's tensors are lent to the goroutine of the link until it has written them
//     and the receiver has confirmed them (L4). The receiver reads them from the socket
//     into buffers of its own space, allocated when it receives. Between the two there are
//     only the socket's buffers and [LinkBuffer] bytes on each side, which no book
//     counts.
//   - Memory that a rank exposes ([transport.Windows]) is read over connections of their own,
//     dialed by the reader and kept for its next reads. A goroutine for each connection
//     answers, and writes the owner's memory to the socket.
//   - The space converts tensors to bytes: see [transport.Codec].
//
// A [Network] replaces the sockets; package transport/mpi has one.
//
// # Invariants
//
//   - A step has a number, its epoch, which is equal on all ranks. A connection of a link belongs
//     to the epoch in which it was dialed and to later ones, and an abort closes all
//     connections up to its epoch. Messages of an aborted step can therefore not be read later.
//   - Only the goroutine of the rank waits on an endpoint, and for one event at a time. Reads of
//     exposed memory wait on their own connections, on any goroutine.
//   - A rank that is lost, by the end of its connection or by its silence, ends the job: every
//     current and later call, on all ranks, returns a [LostError]. Restart a job
//     as a whole.
//   - Until a connection has sent the job's token, only a fixed header of it is kept.
//     A frame begins with its length, and a length over its limit ends the connection.
package tcp
