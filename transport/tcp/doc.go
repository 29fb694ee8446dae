// Package tcp joins ranks in several processes, on one or several hosts, over the standard library's
// sockets: Unix sockets within a host, TCP between hosts. An [Endpoint] is a [transport.Transport];
// package transporttest tests its contract.
//
// [Join] returns the [Endpoint] of a process in a job.
//
// # Ownership
//
//   - Rank 0 is the meeting point. Every other rank has one control connection to it, for step
//     beginnings, exchanges, aborts and heartbeats. Rank 0's hub puts these events in one order,
//     which is the same for all ranks.
//   - Every link has its own connection, which the sender dials when it first sends. Pairs of
//     ranks that exchange no messages in the plan have no such connection.
//   - A send lends its tensors to the goroutine of the link until the goroutine has written them and the
//     receiver has confirmed them (L4). The receiver reads them from the socket into new buffers in its space.
//     Between the two spaces there are only the socket's buffers and at most [LinkBuffer] bytes on each side,
//     which no book counts.
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
//   - Only the rank's own goroutine waits on an endpoint, for one event at a time. Only the calls
//     of [transport.Windows] may also wait on other goroutines.
//   - A rank is lost if its control connection ends or is silent for too long. This ends the job:
//     every current and later call, on all ranks, returns an error that wraps a [LostError]. A job
//     is restarted as a whole.
//   - A rank that waits for another rank gets [ErrSilent] if the connection between the two is silent for too
//     long. Both ends of a link send beats. The owner of exposed memory sends beats until it answers a read;
//     after that, the bytes of the answer arrive.
//   - Until a connection has sent the job's token, the endpoint stores only a header of fixed size
//     from it. A frame's header contains its length, and a length over the limit ends the
//     connection.
//
// # A step is done on every rank or on none
//
// The first exchange of an epoch closes it. A rank has done the step when this Exchange returns the
// result. The hub handles the frames of all ranks one at a time, and each connection preserves their
// order. We show that if one rank has done the step, then every rank that is not lost has done it or
// will do it, and that the end of a context does not prevent this.
//
//   - The hub closes an epoch only if it has not aborted it, and only after the bytes of every rank
//     have arrived. Suppose that a rank ends the step before it has sent its bytes. It then sends
//     abort, and sends no bytes in this epoch, because its calls return the cause. So the epoch is
//     never closed, and no rank does the step.
//   - Suppose that the context of a rank ends while the rank waits for the result. It sends cancel, after its
//     bytes. If the hub still holds these bytes in an incomplete exchange, it aborts the epoch, which is then
//     never closed. Otherwise the epoch is closed, and cancel has no effect. In both cases the rank waits for
//     the frame that tells it which case applies: it has done the step if and only if the epoch is closed.
//   - When the hub closes an epoch, it queues the result for every rank, before any later abort of
//     the same epoch. A rank that waits looks first at whether the result has arrived, and then at
//     the cause of an abort, so it returns the result in either case.
//   - In a closed epoch, Exchange ignores its context and no rank sends cancel. Thus the epoch is aborted only
//     for a rank that calls Abort because it cannot complete its update, that begins another step while others
//     exchange, or that does not answer: never because a context has ended.
//
// Begin is similar: a rank whose context ends sends withdraw, and has begun the step if and only if the
// hub had the hellos of all ranks by then.
package tcp
