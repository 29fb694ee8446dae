// Refit is the loop of reinforcement learning on one machine: train a step in FP8, pass the
// weights to the engine that generates with them, lend it all memory, restore the memory, and
// continue training.
//
// The weights are passed as a stream of named tensors, one at a time, in float32 or quantized.
// Then one call releases every page of the trainer: those of steps and gradients, which are not
// read between steps, and those of weights, moments and tables, which it first writes to a
// file. While the generator writes its text the trainer has nothing live and nothing reserved.
// One call restores everything, at the same addresses. At the end the weights are compared with
// those of a trainer that kept all of its memory: they are the same, bit for bit.
//
//	go run ./examples/refit
//	go run ./examples/refit -fp8 mxfp8 -as block
package main
