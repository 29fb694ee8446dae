// Package gomlx trains a model of GoMLX (github.com/gomlx/gomlx) with Weir: it cuts the model into
// stages and trains them on thousands of microbatches per step, under any schedule, with constant memory.
//
// A stage is a graph function of GoMLX. [New] cuts each into a forward, a backward, and a
// backward in two parts (I and W), which are separate executables:
//
//	m, err := gomlx.New(gomlx.Config{Store: store, Stages: stages, Loss: loss.MeanSquaredError, ...})
//	run, err := runner.New(m.Runner())
//	step, err := run.Step(ctx, 4096, m.Dataset(ds, "x"))
//	err = step.Update(m.Update) // an optimizer of GoMLX
//
// # How a stage is cut
//
// The graph of a stage is built once with its gradients, and is only analyzed. The nodes of the
// forward that the gradients use are kept: the forward returns them in addition to its outputs, and
// the backward takes them. The nodes of the gradients are created again in a separate graph. The
// forward runs the stage's function again, which creates the same nodes with the same ids, so the
// kept nodes are found by id. Nodes that only copy or fill are recomputed, as are the nodes
// selected by Config.Recompute. I passes W the nodes that both need.
//
// # Ownership
//
// A [Buffer] is both the handle of a runner and a buffer of GoMLX. It enters the book of its
// rank's [Device] when the backend returns it, and is finalized with its last reference. A
// buffer whose last reader is a backward is donated to it. Gradients are accumulated in place:
// the accumulator is donated to the addition. The allocator's book is updated by the [Backend],
// which sees every buffer that is created and finalized, including those of GoMLX's own
// executions; the context's book is the runner's. A second Finalize, and any later use, returns
// memory.ErrStale.
//
// The books contain the buffers that exist between executions. [Model.Programs] returns the memory
// that an executable needs internally; the pool of the backend "go" keeps that memory until the
// garbage collector empties it.
//
// # Variables and losses
//
// Layers work unchanged, and variables stay in the store under the same names as in the uncut
// model, so that GoMLX loads and saves checkpoints. A variable that several stages use has an
// accumulator in each; the runner adds them. A loss of GoMLX, which is a mean, is recorded as a
// sum and a weight. The weight is the number of elements of the labels, or of elements for which
// the mask is set. A loss that returns a number for each example is summed. Random state is an
// input, keyed by the seed, the step, the microbatch and the stage, so that dropout does not
// depend on the plan.
//
// # Unsupported models
//
// New returns [ErrRefused], with the node or the variable and a remedy, for: loops, conditions
// and sorts in a gradient, large constants that only a gradient uses, variables that a forward
// changes (the averages of batch normalization), regularization and auxiliary losses, parts of an
// entry that Stage.Reads does not name, updates registered for every step, variables trained in
// another type than float32, and outputs and losses without a gradient. New determines which
// variables are trained: if that changes, Update and calls with a new set of shapes return an
// error. A stage keeps programs for Config.MaxShapes sets of input shapes, and compiles again for
// other sets.
//
// The memory of a step is not planned in advance: buffers belong to the backend, and a [Device]
// is not memory.Planned. Saved state can be offloaded, with the profile of [Model.Profile]: far
// memory is planned. Data-parallel replicas (runner.Replicas) are not supported, because gradients in
// the backend's buffers cannot be divided: runner.New refuses them.
//
// # Several processes
//
// Config.First and Config.Count select the ranks of a process. Every process makes the whole
// model, and trains the variables that its own stages use. A [Device] is the transport.Codec of
// its rank: it sends a tensor as its shape and its bytes.
package gomlx
