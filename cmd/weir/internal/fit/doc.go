// Package fit predicts the memory of every rank of a training run before it is launched, from a
// description of the model.
//
// A [Model] comes from the config.json of a Hugging Face model or from Megatron-LM's flags
// ([Read]). A [Setup] describes the training: sizes, precision, optimizer, parallelism and
// recompute. [Predict] takes both and a plan.
//
// The files, in the order in which they take part in a prediction:
//
//   - values.go, huggingface.go, megatron.go and script.go read a model, weights.go counts its
//     parameters, and static.go computes the bytes of weights, gradients and optimizer state on a
//     rank. harmless.txt lists the flags that change no memory.
//   - formula.go evaluates the sizes of tensors, such as "e*s*b*h/q".
//   - layer.go defines a layer: a list of tensors, each with a formula, a memory class and a
//     lifetime. tables.go has the layers of Megatron-LM.
//   - pieces.go reads a profile that weir.profile has made. It contains what a model's own code keeps, and
//     replaces a description and its lists.
//   - compose.go makes a layout.Profile of the layers of every stage: the forward runs them in
//     order, the backward in reverse. lower.Prepare and layout.Make take this profile like a
//     recorded one.
//   - predict.go adds static and step memory by rank, and reserved.go replays the events of the
//     layout through a simulation of PyTorch's allocator.
//   - best.go searches schedules, cuts of the layers, recompute and microbatch sizes together.
//
// Four results are exact: the number of parameters, the bytes of weights, gradients and optimizer state under
// the stated precision, the order of a plan's allocations and releases, and the peak of a given list of
// tensors. The rest is a model: the lists of tensors, which follow the code of Megatron-LM and measurements of
// it (docs/fit.md); an even load of experts; the times of the search; and the allowance for memory outside of
// tensors, such as the device's context, NCCL's buffers and workspaces of libraries. Weights that ZeRO 3
// gathers for use are counted if the setup says for how many stages.
//
// Invariants: every parameter belongs to exactly one layer; the parameters of a stage are the
// union of its layers' parameters; the plan decides whether a backward is whole or split, and
// tensors are freed accordingly. With a measured profile instead of formulas, this package
// computes only the resident bytes.
package fit
