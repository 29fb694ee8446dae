// Package tcp joins ranks in several processes, on one or several hosts, over the standard library's
// sockets: Unix sockets within a host, TCP between hosts. An [Endpoint] is a [transport.Transport];
// package transporttest tests its contract.
//
// # Ownership
//
//   - Rank 0 is the meeting point. Every other rank has one control connection to it, for step
//     beginnings, exchanges, aborts and heartbeats. Rank 0's hub puts these events in one order,
//     which is the same for all ranks: either an exchange completes or the step is aborted, never
//     both.
//   - A link, which is one direction between two ranks, has its own connection. The sender dials it
//     when it first sends. Pairs of ranks that exchange no messages in the plan have no connection.
//   - A send lends its tensors to the goroutine of the link until the goroutine has written them and
//     the receiver has confirmed them (L4). The receiver reads them from the socket into new buffers
//     of its own space. Between the two spaces there are only the socket's buffers and [LinkBuffer]
//     bytes on each side, which no book counts.
//   - Memory that a rank exposes ([transport.Windows]) is read over separate connections, which the
//     reader dials and keeps for later reads. For each connection, the owner has a goroutine that
//     answers requests by writing the owner's memory to the socket.
//   - The space converts tensors to bytes: see [transport.Codec].
//
// A [Network] replaces the sockets; package transport/mpi implements one.
//
// # Invariants
//
//   - A step has a number, its epoch, which is the same on all ranks. A link's connection belongs to
//     the epoch in which it was dialed and to later epochs. An abort closes all connections dialed in
//     its epoch or earlier, so messages of an aborted step cannot be read later.
//   - Only the rank's own goroutine waits on an endpoint, for one event at a time. Reads of exposed
//     memory wait on their own connections, and on any goroutine.
//   - A rank is lost if its control connection ends or is silent for too long. This ends the job:
//     every current and later call, on all ranks, returns a [LostError]. A job is restarted as a
//     whole.
//   - Until a connection has sent the job's token, the endpoint stores only a header of fixed size
//     from it. A frame begins with its length, and a length over the limit ends the connection.
package tcp
