// Package schedule says what runs when. It is pure: plans are data, passes are
// functions from plan to plan, and nothing here runs or holds a tensor.
//
// An [Action] is one packed word: a kind (F, I, W, B, a transfer, ...), a stage
// and a microbatch, and the drop bits that say what dies with it. A rank's
// program is a list of [Segment]s, each a body that repeats with a stride of
// microbatches, so that a [Plan] takes the same space and the same time to build
// and to check for eight microbatches as for a million.
//
// Generators ([DepthFirst], [BreadthFirst]) return compute actions. The pass
// [Lifetimes] takes the plan and [Facts] about the stages, and marks on every
// action what dies there. [Check] proves a plan without knowing which generator
// made it. The runner (package schedule/runner) obeys the plan; it never guesses.
//
// Letters and words are the field's: F forward, B full backward, I input
// gradient, W weight gradient, as in PyTorch today. A rank is a place in the
// pipeline.
package schedule
