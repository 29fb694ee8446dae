// Package passes has the traversals of a plan that check, lower and simulate share, and the
// facts that follow from a plan's placement and mode. A Walk goes through the program of one
// rank, from its first action to its last. A Machine runs all ranks together. Both skip repeats
// that cannot differ from those before them (package repeats).
//
// # The machine
//
// The configuration of a machine is the next action of each rank, held by a Cursor, and
// whatever the visitor keeps: sets of microbatches, counts, queues, clocks. The machine does one
// thing: a rank runs its next action. A policy chooses the rank. A visitor decides whether the
// action can run in this configuration, and if so, changes the configuration accordingly.
//
//	client     policy       visitor
//	check      RoundRobin   an action waits for what it needs of other ranks, and for room on its link
//	simulate   RoundRobin   an action waits for a message, which says when it can begin
//	transfers  Clock        a computation waits for its message; sends and receives are placed by the clock
//
// # The order of the ranks
//
// In a real run the actions of different ranks interleave in any order. RoundRobin runs one order,
// and that decides all of them if the visitor is monotone. A visitor is monotone if
//
//   - the configuration depends only on the set of actions that have run, not on their order;
//   - a rank that can run its next action still can after any further actions of other ranks.
//
// Lemma. Two runs of a machine with a monotone visitor, each continued until no rank can run its
// next action, have run the same actions.
//
// Proof. Suppose run A has run an action that run B has not. Let a be the first one in the order
// of A. B has run every action that A had run before a, so a is the next action of its rank in
// B. It could run in A after those actions. B has run them too, and further actions of other ranks
// only, so a can run in B. That contradicts the end of B: no rank can run its next action there.
//
// So if one run comes to the end of every program, every run does; and if one ends in a
// deadlock, every run ends with the same ranks before the same actions.
//
// The visitors of RoundRobin are monotone:
//
//   - An action that waits until an action of another rank is done finds it done from then on.
//   - A send that waits for room on a link stays able to run, because no other rank sends there:
//     the messages on the link only become fewer.
//   - On a link of capacity 0, a rendezvous, a receive waits until the sender's next action is the
//     matching send. It remains the next action, because the send waits for the receive.
//   - A message in simulated time is put by one rank and taken by another one, in order. So its
//     times follow from the programs of the ranks, in whatever order these run.
//
// A Clock is not monotone, and need not be. It runs the ranks in the one order that their
// durations give.
//
// # Periods
//
// Ranks whose segments repeat come back to the same action of their bodies, with later
// microbatches. A period is the part of a run between two configurations. It recurs if
//
//   - each rank is at the same action of the same segment as at its beginning;
//   - all ranks that have moved have moved by the same number n of microbatches;
//   - the sets, queues and clocks have moved with them, and counts evenly.
//
// Lemma. The actions of the next period are those of this one, n microbatches later.
//
// For example, rank 0 of 1F1B on two ranks runs F1 B0, F2 B1, F3 B2 and so on, and rank 1 runs
// F0 B0, F1 B1, F2 B2. Let a period begin before F2 on rank 0 and before F1 on rank 1. It runs
// F2 B1 and F1 B1. Then both ranks are at the same places, one microbatch later, and so are the
// microbatches that are done. The next period runs F3 B2 and F2 B2.
//
// Proof, by induction on the actions of the period. Suppose the next period has run the first i
// actions of this one, n microbatches later. The policy depends on the configuration alone, so
// it comes to the same rank, whose next action is that of this period moved by n. The visitor
// asks the same questions about microbatches that are later by n, of sets, queues and clocks that
// have moved by n as well, so it gets the same answers. So the action can run as it could in this
// period, and changes the configuration in the same way.
//
// A rank whose stride is negative moves by -n. Sets note the direction in which they are asked, and
// do not skip if it is not always the same.
//
// The proof holds until something that moves meets something that does not: the end of a segment,
// the edge of a set, the limit of a count. Machine and package repeats find out how many periods
// there are until then. By induction on periods these can be skipped at once: each position, set,
// queue and count moves by its move in one period, times their number.
//
// Clock compares the configuration after each round and so waits for the steady state.
// RoundRobin does not need to. It chooses a number of microbatches that is a multiple of the
// stride of every rank that repeats. In its period each of these ranks runs as many whole repeats as
// move it by that number, wherever in its body it begins, and then lets the others come up to
// it. Usually all of them can, unless they end in a deadlock. If one cannot, the period does not
// recur, nothing is skipped, and the next one is tried later. That costs time and nothing else.
//
// The simulation compares times, which need not all move alike. Its period is a cycle of some
// periods of RoundRobin, and repeats.Trend has the argument.
package passes
