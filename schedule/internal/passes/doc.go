// Package passes provides the traversals of a plan that check, lower and simulate share, and the
// facts that follow from a plan's placement and mode. A [Walk] visits the program of one rank, from
// its first action to its last. A [Machine] runs the programs of all ranks together. Both skip
// repeats whose outcome follows from previous repeats (package repeats).
//
// # The machine
//
// The configuration of a machine consists of the position of each rank, stored in a [Cursor], and of
// the state of the visitor: sets of microbatches, counts, queues, and clocks. In each step, one rank
// runs its next action. A policy chooses the rank. A visitor decides whether the action can run in
// the current configuration, and if so, updates the configuration. A rank whose action cannot run
// waits. A deadlock is a configuration in which all ranks wait or have finished, and not all have
// finished.
//
//	client     policy       an action waits for
//	check      RoundRobin   its dependencies on other ranks, and a free slot of its link
//	simulate   RoundRobin   its message, whose arrival determines when the action starts
//	transfers  Clock        its message; the pass inserts sends and receives at the times of the clock
//
// # The order of the ranks
//
// In a real run, the actions of different ranks interleave in any order. RoundRobin runs a single
// order. All orders have the same outcome if the visitor is monotone, that is, if
//
//   - the configuration depends only on the set of actions that have run, not on their order;
//   - a rank that can run its next action can still run it after any further actions of other
//     ranks.
//
// Lemma 1. Two runs of a machine with a monotone visitor, each continued until no rank can run its
// next action, run the same actions.
//
// Proof. Suppose that run A runs an action that run B does not run. Let a be the first such action in
// the order of A. Run B runs every action that precedes a in A. These include the preceding actions
// of a's rank, so a is the next action of its rank at the end of B. In A, action a can run after the
// actions that precede it. All other actions of B belong to other ranks, so by the second property a
// can run at the end of B. But no rank can run its next action at the end of B, a contradiction.
//
// Therefore, if one run completes every program, every run does; and if one run ends in a deadlock,
// every run ends in the same deadlock.
//
// The visitors of RoundRobin are monotone:
//
//   - An action that waits for an action of another rank can run at any time after that action.
//   - A send that can run because its link has a free slot can still run later, because no other
//     rank sends on the link: the other ranks can only increase the number of free slots.
//   - On a link of capacity 0 (rendezvous), a receive waits until the sender's next action is the
//     matching send. The send remains the next action, because it waits for the receive.
//   - In a simulation, one rank sends the messages of a link and one rank receives them, in order.
//     The time of a message is a function of earlier times of these two ranks, so it does not
//     depend on the order in which the ranks run.
//
// The visitor of a Clock need not be monotone, because the durations of actions determine the order.
//
// # Periods
//
// A rank in a repeating segment returns to the same action of the body with later microbatches. A
// period is the part of a run between two configurations. It recurs if
//
//   - each rank is at the same action of the same segment as at the beginning of the period;
//   - all ranks that have advanced have advanced by the same number n of microbatches;
//   - the sets, queues and clocks are the same as at the beginning except for a shift by n
//     microbatches, and counts may differ.
//
// Lemma 2. The period after one that recurs runs the same actions, n microbatches later.
//
// For example, rank 0 of 1F1B on two ranks runs F0, then F1 B0, F2 B1, F3 B2 and so on, and rank 1
// runs F0 B0, F1 B1, F2 B2 and so on. Let a period begin before F2 on rank 0 and before F1 on rank 1.
// The period runs F2 B1 on rank 0 and F1 B1 on rank 1. Then both ranks are at the same actions, one
// microbatch later, and the sets of finished microbatches have shifted by one. The next period runs
// F3 B2 and F2 B2.
//
// Proof, by induction on the actions of the period. Suppose that the next period has run the first i
// actions of this period, n microbatches later. The policy depends only on the configuration, so it
// chooses the same rank, whose next action is the next action of this period shifted by n. The
// queries of the visitor are shifted by n, and so are the sets, queues and clocks, so the results of
// the queries are the same. Therefore the action can run, as in this period, and updates the
// configuration in the same way.
//
// A rank with a negative stride advances by -n. Sets record the direction of their queries, and no
// period is skipped if a set has queries in both directions.
//
// The proof holds until a moving value meets a constant one: the end of a segment, a constant edge of
// a set, or the limit of a count. Machine and package repeats compute the number of periods until
// then. By induction on periods, all of them can be skipped at once: each position, set, queue and
// count changes by its delta over one period, multiplied by the number of periods.
//
// The two policies find periods in different ways. Clock compares the configuration after each round
// with that at the beginning of the period, and so detects the steady state. RoundRobin constructs
// periods. It chooses n as the least common multiple of the strides of all repeating ranks. In a
// period, each of these ranks runs as many repeats as advance it by n microbatches, beginning
// anywhere in its body, and then waits for the others. By Lemma 1, the order in which a period runs
// does not matter. If a rank cannot complete its part, the period does not recur. RoundRobin then
// skips nothing and tries again later, which only costs time.
//
// In a simulation, times may change by different amounts. Its period is a cycle of several periods of
// RoundRobin; see repeats.Trend for the proof.
package passes
