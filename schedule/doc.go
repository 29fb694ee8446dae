// Package schedule makes and reads plans: it has the type of plans, the rules that generate them,
// and their text form. Plans are data; this package does not run them and holds no tensors.
//
// An [Action] is one packed word: a kind (F, I, W, B, a transfer, ...), a stage
// and a microbatch, and the drop bits for the lifetimes that end with it. A rank's
// program is a list of [Segment]s, each a body that repeats with a stride of
// microbatches, so that a [Plan] takes the same space and the same time to build
// and to check for eight microbatches as for a million. A [Placement] says which
// rank has which stage.
//
// # From a name to a program
//
//   - A [Rule] makes the computations of a plan: [OneFOneB], [Interleaved], [ZBV]
//     and the others. [Schedules] lists them by name, [Find] finds one. A [Builder]
//     writes their programs, and finds their repeats.
//   - Package schedule/lower adds the rest: the gathering of weights and the reduction of
//     gradients, the copies on which stages compute in low precision, the transfers between ranks,
//     and the drops of each action.
//   - Package schedule/check proves a plan, whatever rule made it.
//   - Package schedule/simulate computes the costs of a plan: time by two clocks, waits, bytes.
//
// The runner (package schedule/runner) obeys the plan; it never guesses. Forms of
// files are in schedule/format, pictures in schedule/draw, the search for the best
// schedule in schedule/choose.
//
// Letters follow PyTorch: F forward, B full backward, I input gradient, W weight gradient. A rank
// is a position in the pipeline.
package schedule
