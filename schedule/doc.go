// Package schedule defines plans, the rules that generate them, and their text form. Plans are data;
// this package neither runs them nor holds tensors.
//
// An [Action] is one packed word: a kind (F, I, W, B, a transfer, ...), a stage and a microbatch, and
// the drop bits for the lifetimes that end with the action. A rank's program is a list of segments:
// a [Segment] is a body that repeats with a stride of microbatches, so that a [Plan] for a million
// microbatches needs no more space, or time to build and check, than a plan for eight. A [Placement]
// assigns each stage to a rank.
//
// # From a name to a program
//
//   - A [Rule], such as [OneFOneB], [Interleaved] or [ZBV], generates the computations of a plan.
//     [Schedules] lists the rules with their names, and [Find] returns the rule with a name. A
//     [Builder] writes programs and detects their repeats.
//   - Package schedule/lower adds the rest: the gathering of weights and the reduction of
//     gradients, the copies of weights with which stages compute in low precision, the transfers
//     between ranks, and the drops of each action.
//   - Package schedule/check proves a plan, regardless of the rule that generated it.
//   - Package schedule/simulate predicts the time of a plan (makespan and span), its waits and its
//     memory.
//
// The runner (package schedule/runner) follows the plan exactly. Package schedule/format reads and
// writes other file formats, schedule/draw draws plans, and schedule/choose searches for the best
// schedule.
//
// The letters are PyTorch's: F is a forward, B a full backward, I an input gradient, and W a weight
// gradient. A rank is a position in the pipeline. P is the number of ranks, V the number of stages per rank,
// and M the number of microbatches.
package schedule
