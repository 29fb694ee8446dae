// Package pack plans a step from the lengths of its sequences: it deals the sequences to the replicas,
// packs those of a replica into microbatches, and orders the microbatches, so that the slowest replica
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
// Sequences are dealt to replicas by their work, the longest first, each to the replica that would
// finish first. For each replica, numbers of microbatches from the fewest to one for each sequence, and
// several profiles of their sizes, are filled in the same way and simulated. The best of them is improved
// by moving and exchanging sequences and microbatches; each trial is simulated with a
// [simulate.Evaluator]. Replicas that take longer than others then get less work, and the best of a few
// rounds wins. Effort is the number of simulations.
//
// # What holds
//
//   - Every sequence is in exactly one microbatch of one replica, and no microbatch is empty.
//   - No microbatch has more than Limits.Tokens tokens, and no rank holds more than Limits.Memory live
//     bytes. If that is impossible, or none is found, Pack returns an error and no packing.
//   - The result depends on the configuration and the lengths alone.
//   - No packing, dealing or order of these sequences has a makespan less than Packing.Bound.
//
// The package is pure: it reads no clock, starts no goroutine and performs no I/O.
package pack
