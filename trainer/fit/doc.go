// Package fit is for saying before a training run is launched whether it fits: the bytes of
// every rank, from a description of the model.
//
// A [Model] comes from the config.json of a Hugging Face model ([ReadConfig]) or from
// Megatron-LM's flags ([ReadMegatron]). A [Setup] says how it is trained: sizes, precision,
// optimizer, parallelism and recompute. [Predict] takes both and a plan.
//
// The way from a model to a peak, in the order in which to read it:
//
//   - huggingface.go and megatron.go read a model, weights.go counts its parameters, and
//     static.go says what weights, gradients and optimizer take on a rank.
//   - formula.go evaluates the sizes of tensors, such as "e*s*b*h/q".
//   - layer.go says what a layer is: a list of tensors, each with a formula, a class of memory
//     and the moments between which it lives. tables.go has the layers of Megatron-LM and of plain
//     PyTorch.
//   - compose.go makes a layout.Profile of the layers of every stage: forwards in the order of the
//     layers, backwards in the reverse order. That profile goes through lower.Prepare and
//     layout.Make like one that was recorded.
//   - predict.go adds the two halves up by rank, and reserved.go plays the events of the layout
//     through PyTorch's allocator.
//   - best.go searches schedules, cuts of the layers, recompute and microbatch sizes together.
//
// Exact are the number of parameters, the bytes of weights, gradients and optimizer state
// under the stated precision, the order in which a plan's tensors live and die, and the peak
// of a given list of tensors. Modelled are the lists themselves, which follow the code of
// Megatron-LM and PyTorch as it was read and measured (docs/fit.md); an even load of experts;
// the times of the search; and the allowance for what no tensor accounts for: the context of the
// device, buffers of NCCL, workspaces of libraries. Weights that ZeRO 3 gathers for use are
// not counted.
//
// These hold always: a parameter belongs to exactly one layer; the parameters of a stage are
// those of its layers; a tensor is freed in the same backward that the plan has, whole or split;
// and without formulas (a measured profile) only the resident bytes are computed here.
package fit
