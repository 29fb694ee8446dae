// Package tcp joins ranks in several processes, on one or several hosts, over the sockets of the
// standard library: Unix sockets within a host, TCP between hosts. An [Endpoint] is a
// [transport.Transport]; package transporttest tests its contract.
//
// # Ownership
//
//   - Rank 0 is the meeting point. Every other rank has one control connection to it, for the
//     beginnings of steps, exchanges, aborts and heartbeats. The hub of rank 0 puts these events
//     in one order, which is the same for all ranks: an exchange is complete or the step is
//     aborted, never both.
//   - A link, which is one direction between two ranks, has its own connection. The sender dials
//     it when it first sends. Pairs of ranks that the plan does not use have no connection.
//   - A send lends its tensors to the goroutine of the link until the goroutine has written them
//     and the receiver has confirmed them (L4). The receiver reads them from the socket into new
//     buffers of its own space. Between the two spaces there are only the buffers of the socket
//     and [LinkBuffer] bytes on each side, which no book counts.
//   - Memory that a rank exposes ([transport.Windows]) is read over separate connections, which
//     the reader dials and keeps for its next reads. The owner has a goroutine for each connection
//     that answers, and writes the owner's memory to the socket.
//   - The space converts tensors to bytes: see [transport.Codec].
//
// A [Network] replaces the sockets; package transport/mpi implements one.
//
// # Invariants
//
//   - A step has a number, its epoch, which is equal on all ranks. The connection of a link belongs
//     to the epoch in which it was dialed and to later epochs, and an abort closes all connections
//     up to its epoch. Messages of an aborted step can therefore not be read later.
//   - Only the goroutine of the rank waits on an endpoint, for one event at a time. Reads of exposed
//     memory wait on their own connections, on any goroutine.
//   - A rank is lost if its control connection ends or is silent for too long. This ends the job:
//     every current and later call, on all ranks, returns a [LostError]. A job is restarted as a
//     whole.
//   - Until a connection has sent the job's token, the endpoint keeps only a header of fixed size.
//     A frame begins with its length, and a length over the limit ends the connection.
package tcp
