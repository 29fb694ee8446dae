// Package fp8 supports training in eight bits and fewer: it provides the number formats, the
// recipes that scale tensors into them, the scaling state that a recipe needs, and quantized
// tensors with checked lifetimes.
//
// A [Recipe] is an immutable value. There are two kinds of scales. Those of [DelayedScaling] are
// derived from a history of steps: a [State] keeps them fixed during a step, a [Tally] collects every
// microbatch's greatest magnitude in any order, and the State rolls its history once, when the step ends.
// Thus no result depends on the schedule, and a recompute uses the scales of the first pass (L13,
// L14). All other scales depend only on their own tensor and need no state.
//
// # Lifetimes
//
// A [Tensor] has up to two halves, rowwise and columnwise. Each is one buffer that holds codes
// and scales together, so a scale cannot outlive its data. [Tensor.Keep] releases the other half immediately,
// [Tensor.Save] moves the remaining half to the action that needs it, [Take] returns it once, and [Tensor.Release]
// releases it. Any other use returns [ErrKept], [ErrTaken] or [ErrReleased], with the name of the tensor. The scales
// and tallies of all tensors of a model are in one [Slab] per device. There is no cache.
//
// # A step
//
//	f, b   every microbatch, in any order: quantize with the slab's frozen scale, or with
//	       none, and merge the statistics into the slab's tally
//	end    Slab.Collect of every device, Reducer of every process, State.End, Slab.Load
//
// # Decisions
//
// Where implementations disagree, this package makes a choice and documents it: scales of zero
// and infinity ([ScaleOf]), infinity in saturating casts ([kernels.Format]), the values that
// enter a history ([State.End]), the scale of a tensor without a history ([State.Known]), and
// widths that are not multiples of a block ([Divides]). NVFP4 applies no Hadamard transform, and
// gives each 1x16 block of a weight its own scale, not each 16x16 block.
package fp8
