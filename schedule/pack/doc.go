// Package pack plans a step from the lengths of its sequences: it deals the sequences to the replicas,
// packs the sequences of each replica into microbatches, and orders the microbatches, so that the slowest replica
// finishes as early as possible.
//
// A [Packer] is made once, for a schedule, a placement, costs with rates for each token and for each
// squared length, and limits. [Packer.Pack] then plans one step. It does not equalize microbatches: it
// minimizes the makespan that [simulate.Run] computes for the schedule, because a pipeline fills and
// drains faster if the first and the last microbatches are small, and because the order decides how long
// ranks wait. Replicas may have different numbers of microbatches.
//
// # How it searches
//
// Sequences are dealt to replicas in order of their work, the largest first, each to the replica with the least work so
// far. For the first replica, the search tries numbers of microbatches from the fewest to one for each sequence, with
// several profiles of their sizes: it fills the microbatches greedily and simulates the result. The other replicas use
// the best of these shapes, and a replica that remains much slower than the others gets its own search. Replicas that
// take longer than others get less work in up to two further rounds, of which the best counts. Finally, the packing of
// each replica is improved by moving and exchanging sequences and microbatches; each trial is simulated with a
// [simulate.Evaluator]. Effort is the number of these trials.
//
// # What holds
//
//   - Every sequence is in exactly one microbatch of one replica, and no microbatch is empty.
//   - No microbatch has more than Limits.Tokens tokens, and no rank holds more than Limits.Memory live
//     bytes. If Pack finds no such packing, it returns an error.
//   - The result depends only on the configuration and the lengths.
//   - No packing, dealing or order of these sequences has a makespan less than Packing.Bound.
//
// The package is pure: it reads no clock, starts no goroutine and performs no I/O.
package pack
