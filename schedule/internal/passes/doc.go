// Package passes provides the traversals of a plan that check, lower and simulate share, and the
// facts that follow from a plan's placement and mode. A [Walk] visits the program of one rank, from
// its first action to its last. A [Machine] runs the programs of all ranks together. Both skip
// repeats whose outcome follows from previous repeats (package repeats).
//
// # The machine
//
// A configuration of a machine consists of the position of each rank in its program, stored in a
// [Cursor], and of the state of the visitor: sets of microbatches, counts, queues, and clocks. In each
// step, the policy chooses a rank, and the visitor decides whether the next action of this rank can
// run in the current configuration. If it can, the visitor updates its state, and the rank advances.
// If it cannot, the rank waits. A deadlock is a configuration in which all ranks wait or have
// finished, and not all have finished.
//
//	client           policy       an action waits for
//	check            RoundRobin   its dependencies on other ranks, and free space on its link
//	simulate         RoundRobin   its message, whose arrival determines when the action starts
//	lower.Transfers  Clock        its message; the pass inserts sends and receives at the times of the clock
//
// # The order of the ranks
//
// In a real run, the actions of different ranks interleave in any order. RoundRobin runs a single order, whose result
// holds for all orders if the visitor is monotone. Let S be the set of actions that have run. Programs run in order, so
// S contains the first actions of each program. A visitor is monotone if
//
//   - the configuration is a function of S, that is, it does not depend on the order in which the
//     actions of S have run;
//   - a rank that can run its next action a after S can also run a after every set T that contains S
//     but not a, if some run reaches T.
//
// Lemma 1. Two runs of a machine with a monotone visitor, each continued until no rank can run its
// next action, run the same actions.
//
// Proof. Suppose that run A runs an action that run B does not run. Let a be the first such action in
// the order of A. Let S be the set of actions that precede a in A, and T the set of all actions of B.
// T contains S, but not a. The actions that precede a in its program are in S and thus in T, so a is
// the next action of its rank after T. In A, a can run after S. By the second property, a can run
// after T. But no rank can run its next action after T, because B has ended there: a contradiction.
//
// Therefore, if one run completes every program, every run does; and if one run ends in a deadlock,
// every run ends in the same deadlock.
//
// The visitors of RoundRobin are monotone. Both S and T contain exactly those actions of a's rank that
// precede a, so they differ only in actions of other ranks.
//
//   - If a waits for an action of another rank, that action is in S, and thus in T.
//   - If a is a send that waits for free space, only its rank sends on the link. The sends on the link
//     are the same in S and T, and T contains at least the receives of S, so the link has at least as
//     much free space.
//   - The receive of a message that exceeds the capacity of its link (rendezvous) waits until the
//     sender's next action is the matching send. The send waits for the receive, so it is not in T
//     either, and it is still the sender's next action.
//   - In a simulation, each link has one sender and one receiver, and both process its messages in
//     order. The time of an action is a function of the times of earlier actions of its rank and of
//     the messages that it takes. By induction on the actions, no time depends on the order in which
//     the ranks run. (A fault in the plan ends a simulation immediately; which fault is found first may depend on the
//     order.)
//
// The visitor of a Clock need not be monotone: the order of the actions is the result of its run, and
// follows from their durations.
//
// # Periods
//
// A rank in a repeating segment returns to the same action of the body with later microbatches. A
// period is the part of a run between two configurations. It recurs with shift n > 0 if, at its end,
//
//   - each rank is at the same action of the same segment as at the beginning;
//   - each rank has advanced by n microbatches, or has not run any action;
//   - each edge of a set, and each end of a range of a queue, has moved by n microbatches or has not
//     moved.
//
// Values that advance by n are moving: the microbatches of the actions of ranks that have advanced,
// and the edges and ends that have moved. All others are constant, including the microbatches for which a rank waits
// throughout the period. Counts are neither moving nor constant: they may change by any amount. A moving value meets a
// constant one when a comparison of the two has another result than one period earlier.
//
// Lemma 2. Suppose that a period recurs with shift n, and that during the next period no rank leaves its
// segment, no moving value meets a constant one, and no count crosses its limit. Then the next period
// runs the same actions, n microbatches later, and recurs with shift n.
//
// For example, rank 0 of 1F1B on two ranks runs F0, then F1 B0, F2 B1, F3 B2 and so on, and rank 1
// runs F0 B0, F1 B1, F2 B2 and so on. Let a period begin before F2 on rank 0 and before F1 on rank 1.
// The period runs F2 B1 on rank 0 and F1 B1 on rank 1. Then both ranks are at the same actions, one
// microbatch later. Each set of finished microbatches still begins at 0, and its upper edge has moved
// by one. The next period runs F3 B2 and F2 B2.
//
// Proof, by induction on the actions of the period. Suppose that the next period has run the first i
// actions of this period, n microbatches later. Then its configuration is the one after the first i
// actions of this period, except that moving values are later by n and counts differ. The policy
// depends only on the positions within the period, so it chooses the same rank. The results of the
// visitor's queries depend on comparisons of microbatches, edges and ends with each other, and of
// counts with their limit. Two moving values have the same difference as in this period; so have two
// constant ones. A moving value and a constant one compare as in this period, because they have not
// met. So the results are the same. Therefore the action can run, as in this period, and changes the
// configuration in the same way.
//
// A rank with a negative stride advances by -n. Sets record the direction of their operations, and no
// period is skipped if a set has operations in both directions.
//
// Machine and package repeats compute the number of periods for which the conditions of the lemma hold.
// By induction on periods, all of these can be skipped in one step: each position, edge, queue and count changes by its
// delta over one period, multiplied by the number of periods.
//
// The two policies find periods in different ways. Clock compares the configuration after each round
// with that at the beginning of the period, and so detects the steady state. RoundRobin constructs
// periods. It chooses n as the least common multiple of the strides of all repeating ranks. In a
// period, each of these ranks runs as many repeats as advance it by n microbatches, beginning
// anywhere in its body, and then stops until the others have done so. No visitor requires it to stop,
// but by Lemma 1 any order of the ranks is as good as any other. A rank that has not advanced since
// the previous period began may wait throughout the period. If another rank cannot complete its part,
// the period does not recur. RoundRobin then skips nothing and tries again later, which only costs
// time.
//
// In a simulation, times change by other amounts than microbatches, so Lemma 2 does not apply. A
// repeats.Trend skips cycles of several periods of RoundRobin; its documentation contains the proof.
package passes
