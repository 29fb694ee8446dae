// Package schedule says what runs when. It is pure: plans are data, passes are
// functions from plan to plan, and nothing here runs or holds a tensor.
//
// An [Action] is one packed word: a kind (F, I, W, B, a transfer, ...), a stage
// and a microbatch, and the drop bits that say what dies with it. A rank's
// program is a list of [Segment]s, each a body that repeats with a stride of
// microbatches, so that a [Plan] takes the same space and the same time to build
// and to check for eight microbatches as for a million. A [Placement] says which
// rank has which stage.
//
// # From a name to a program
//
//   - A [Rule] makes the computations of a plan: [OneFOneB], [Interleaved], [ZBV]
//     and the others. [Schedules] lists them by name, [Find] finds one.
//   - Passes add the rest. [Shard] and [ReduceGradients] say when weights are
//     gathered and gradients reduced, [Quantized] when the copies are made on which
//     stages compute in low precision, [Comms] what is sent and received between
//     ranks, [Lifetimes] what dies with each action. [Split], [Merge] and [Unsplit]
//     change how backwards are run.
//   - [Check] proves a plan without knowing what made it; [Prove] and
//     [LeastCapacity] say more.
//   - [Simulate] says what a plan costs: time by two clocks, waits, bytes.
//
// The runner (package schedule/runner) obeys the plan; it never guesses. Forms of
// files are in schedule/format, pictures in schedule/draw, the search for the best
// schedule in schedule/choose.
//
// # How it scales
//
// Four engines go over plans, and each leaps over repeats that cannot differ: a walk
// goes through one rank's program (walk.go has the argument), a march takes all ranks
// together, in any order (march.go), a clock takes them round by round (clock.go,
// period.go), and the simulation goes on in time (simulate_leap.go). DepthFirst finds
// its own period as it builds (greedy.go). What has no repeats is visited action by
// action.
//
// Letters and words are the field's: F forward, B full backward, I input
// gradient, W weight gradient, as in PyTorch today. A rank is a place in the
// pipeline.
package schedule
