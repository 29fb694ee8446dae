// Package gomlx is for training a model of GoMLX (github.com/gomlx/gomlx) with Weir: cut into
// stages, over thousands of microbatches a step, under any schedule, with flat memory.
//
// A stage is a graph function of GoMLX. [New] makes of each a forward, a backward, and a
// backward in two parts (I and W), as separate executables:
//
//	m, err := gomlx.New(gomlx.Config{Store: store, Stages: stages, Loss: loss.MeanSquaredError, ...})
//	run, err := runner.New(m.Runner())
//	step, err := run.Step(ctx, 4096, m.Dataset(ds, "x"))
//	err = step.Update(m.Update) // an optimizer of GoMLX
//
// # How a stage is cut
//
// The graph of a stage is built once with its gradients, and only read. Nodes of the
// forward that the gradients use are what the forward keeps: it returns them beside its
// outputs, and the backward takes them. The nodes of the gradients are made again in a graph
// of their own. The forward is the stage's function, run again: it makes the same nodes
// with the same numbers, so what is kept is found by number. Nodes that only copy or fill
// are computed again, as is what Config.Recompute names. I hands W what both need.
//
// # Who owns what
//
// A [Buffer] is the handle that a runner moves, and a buffer of GoMLX at the same time. It is
// born in the book of its rank's [Device] when the backend returns it, and finalized with its
// last reference. A buffer that a backward is the last to read is donated to it. Gradients are
// accumulated in place: the accumulator is donated to the addition. The allocator's book is
// fed by the [Backend], which sees every buffer made and finalized, those of GoMLX's own
// executions too; the context's book is the runner's. A second Finalize, and any use
// afterwards, is memory.ErrStale.
//
// The books hold buffers between executions. The memory that an executable needs inside is in
// [Model.Programs]; the pool of "go" keeps what executables have used inside, until the
// garbage collector empties it.
//
// # Variables and losses
//
// Layers work unchanged, and variables stay in the store, under the names that the whole
// model has: checkpoints of GoMLX load and save. A variable that several stages use has
// an accumulator in each; the runner adds them. A loss of GoMLX, which is a mean, is recorded
// as a sum and a weight: the number of elements of the labels, or how often the mask is set.
// A loss that returns a number for each example is summed. Random state is an input, keyed
// by the seed, the step, the microbatch and the stage, so that dropout does not depend on
// the plan.
//
// # What is refused
//
// New returns [ErrRefused], with the node or the variable and what to do: loops, conditions
// and sorts in a gradient, large constants that only a gradient uses, variables that a
// forward changes (the averages of batch normalization), losses of regularization and
// auxiliary losses, parts of an entry that Stage.Reads does not name, updates
// registered for every step, variables trained in another type than float32, and outputs
// and losses without a gradient. New finds which variables are trained: a change of it is
// an error of Update, and of a new set of shapes. A stage has programs for Config.MaxShapes
// sets of input shapes; one set more compiles anew.
//
// The memory of a step is not planned beforehand: buffers are the backend's, and a [Device] is
// not memory.Planned. All ranks are in one process, since they share one store.
package gomlx
