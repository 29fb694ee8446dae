// Package passes provides the traversals of a plan that check, lower and simulate share, and the
// facts that follow from a plan's placement and mode. A Walk traverses the program of one rank,
// from its first action to its last. A Machine runs all ranks together. Both skip repeats that must
// equal previous repeats (package repeats).
//
// # The machine
//
// The configuration of a machine is the next action of each rank, held by a Cursor, and the state
// of the visitor: sets of microbatches, counts, queues, clocks. The machine has one kind of step: a
// rank runs its next action. A policy chooses the rank. A visitor decides whether the action can
// run in the current configuration, and if so, updates the configuration.
//
//	client     policy       visitor
//	check      RoundRobin   an action waits for what it needs of other ranks, and for room on its link
//	simulate   RoundRobin   an action waits for a message, which says when it can begin
//	transfers  Clock        a computation waits for its message; sends and receives are placed by the clock
//
// # The order of the ranks
//
// In a real run the actions of different ranks interleave in any order. RoundRobin runs one order,
// which has the same outcome as every other order if the visitor is monotone. A visitor is monotone
// if
//
//   - the configuration depends only on the set of actions that have run, not on their order;
//   - a rank that can run its next action can still run it after any further actions of other
//     ranks.
//
// Lemma. Two runs of a machine with a monotone visitor, each continued until no rank can run its
// next action, have run the same actions.
//
// Proof. Suppose run A has run an action that run B has not. Let a be the first such action in the
// order of A. B has run every action that A had run before a, so a is the next action of its rank
// in B. Action a could run in A after those actions. B has run them too, and beyond them only
// actions of other ranks, so a can run in B. This contradicts the assumption that no rank can run
// its next action at the end of B.
//
// Therefore, if one run completes every program, every run does; and if one run ends in a deadlock,
// every run ends in the same deadlock.
//
// The visitors of RoundRobin are monotone:
//
//   - An action that waits for an action of another rank can run at any time after that action.
//   - A send that can run because its link has room can still run later, because no other rank
//     sends on the link: the number of messages on the link can only decrease.
//   - On a link of capacity 0 (rendezvous), a receive waits until the sender's next action is the
//     matching send. The send remains the next action, because it waits for the receive.
//   - In simulated time, one rank puts the messages of a link and another rank takes them, in
//     order. Therefore their times follow from the programs of the ranks, regardless of the order
//     in which the ranks run.
//
// A Clock is not monotone, and need not be: the durations of actions determine its single order.
//
// # Periods
//
// Ranks whose segments repeat return to the same actions of their bodies with later microbatches. A
// period is the part of a run between two configurations. It recurs if
//
//   - each rank is at the same action of the same segment as at the beginning of the period;
//   - all ranks that have advanced have advanced by the same number n of microbatches;
//   - the sets, queues and clocks have shifted by the same number, and each count has changed by a
//     constant.
//
// Lemma. The next period runs the same actions as this period, n microbatches later.
//
// For example, rank 0 of 1F1B on two ranks runs F1 B0, F2 B1, F3 B2 and so on, and rank 1 runs F0
// B0, F1 B1, F2 B2. Let a period begin before F2 on rank 0 and before F1 on rank 1. The period runs
// F2 B1 and F1 B1. Then both ranks are at the same actions, one microbatch later, and the sets of
// finished microbatches have shifted by one. The next period runs F3 B2 and F2 B2.
//
// Proof, by induction on the actions of the period. Suppose the next period has run the first i
// actions of this period, n microbatches later. The policy depends only on the configuration, so it
// chooses the same rank, whose next action is the next action of this period shifted by n. The
// visitor's queries are shifted by n, and so are the sets, queues and clocks, so the results of the
// queries are the same. Therefore the action can run, as in this period, and updates the
// configuration in the same way.
//
// A rank with a negative stride advances by -n. Sets record the direction of their queries, and do
// not skip if a set has queries in both directions.
//
// The proof holds until a moving value reaches a fixed bound: the end of a segment, the edge of a
// set, the limit of a count. Machine and package repeats compute the number of periods until then.
// By induction on periods, all of them can be skipped at once: each position, set, queue and count
// changes by its delta over one period, multiplied by the number of periods.
//
// Clock compares the configuration after each round, and thus waits for the steady state.
// RoundRobin constructs periods instead. It chooses a number of microbatches that is a multiple of
// the stride of every repeating rank. In a period, each of these ranks runs the number of whole
// repeats that advances it by that number, beginning anywhere in its body, and then waits for the
// others. Usually all ranks complete this unless the plan deadlocks. If a rank does not, the period
// does not recur, RoundRobin skips nothing, and tries again later. This costs only time.
//
// The simulation compares times, which may change by different amounts. Its period is a cycle of
// several periods of RoundRobin; see repeats.Trend for the proof.
package passes
