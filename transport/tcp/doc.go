// Package tcp joins ranks in several processes, on one host or on many, over the sockets
// of the standard library: Unix sockets within a host, TCP between hosts. An [Endpoint] is
// a [transport.Transport] and is held to its contract by package transporttest.
//
// # Who owns what
//
//   - Rank 0 is the meeting point. Every other rank has one control connection to it, which
//     carries the beginnings of steps, exchanges, aborts and heartbeats. The hub of rank 0
//     puts them in one order, and that order is what all ranks see: an exchange is complete
//     or the step is aborted, never both.
//   - A link, one direction between two ranks, has its own connection, dialed by the
//     sender when it first sends. Pairs that the plan does not use have none.
//   - The sender's tensors are lent to the goroutine of the link until it has written them
//     and the receiver has confirmed them (L4). The receiver reads them from the socket
//     into buffers of its own space, allocated when it receives: between the two there is
//     nothing but the socket's buffers and [LinkBuffer] bytes on each side, which no book
//     counts.
//   - How a tensor becomes bytes is the space's to say: see [transport.Codec].
//
// A [Network] can stand in for the sockets: transport/mpi is one.
//
// # Invariants
//
//   - A step has a number, its epoch, the same on all ranks. A connection of a link belongs
//     to the epoch in which it was dialed and to those after it, and an abort closes all
//     connections up to its epoch. So nothing that an aborted step has sent can be read later.
//   - Only the goroutine of the rank waits on an endpoint, and it waits for one thing.
//   - A rank that is lost, by the end of its connection or by its silence, ends the job: every
//     call under way and every later one, on all ranks, returns a [LostError]. A job is
//     started again as a whole.
//   - Nothing is kept of what a connection says beyond a fixed header until it has shown the
//     job's token. A frame says its length first, and a length over its limit ends the connection.
package tcp
