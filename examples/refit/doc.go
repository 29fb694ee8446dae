// Refit runs the loop of reinforcement learning on one machine: train a step in FP8, pass the
// weights to the engine that generates text with them, lend all memory to it, restore the
// memory, and continue training.
//
// The weights are passed as a stream of named tensors, one at a time, in float32 or quantized.
// Then one call releases every page of the trainer: pages of steps and gradients, which are not
// read between steps, and pages of weights, moments and tables, whose contents it first writes
// to a file. While the generator writes its text, the trainer has no live and no reserved
// memory. One call restores everything at the same addresses. At the end the weights are
// compared with the weights of a trainer that kept all of its memory: they are bitwise equal.
//
//	go run ./examples/refit
//	go run ./examples/refit -fp8 mxfp8 -as block
package main
