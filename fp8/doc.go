// Package fp8 is for training in eight bits and fewer: it has the number formats, the recipes
// that scale tensors into them, the scaling state that a recipe needs, and quantized tensors
// that cannot be kept by mistake.
//
// A [Recipe] is an immutable value. Two kinds of scales follow from it. Those of
// [DelayedScaling] come from a history of steps: a [State] freezes them when a step
// begins, takes the greatest magnitude of every microbatch in any order, and rolls its
// history once, when the step ends. So no result depends on the schedule, and a
// recompute sees the scales of its first pass (L13, L14). All others depend on their own
// tensor alone, and keep nothing.
//
// # Lifetimes
//
// A [Tensor] has up to two halves, rowwise and columnwise, each one buffer of codes and
// scales together: a scale cannot outlive its data. [Tensor.Keep] releases the other half
// at once, [Tensor.Save] moves the one that is left to the action that needs it, [Take]
// gives it back once, [Tensor.Release] releases it. Whatever else is done with it is
// [ErrKept], [ErrTaken] or [ErrReleased], and names the tensor. All scales and tallies of
// a model's tensors lie in one [Slab] for each device. There is no cache.
//
// # A step
//
//	f, b   every microbatch, in any order: quantize with the slab's frozen scale, or with
//	       none, and merge what is met into the slab's tally
//	end    Slab.Collect of every device, Reducer of every process, State.End, Slab.Load
//
// # Decisions
//
// If the field disagrees the package decides, and says so where it does: scales of
// zero and infinity ([ScaleOf]), infinity in saturating casts ([kernels.Format]), what
// enters a history ([State.End]), what a tensor without one is scaled by ([State.Known]),
// widths that do not divide ([Divides]). NVFP4 has no Hadamard transform, and scales
// weights by rows of 16, not by 16 by 16.
package fp8
