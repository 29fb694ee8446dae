// Refit is the loop of reinforcement learning on one machine: train a step in FP8, hand the
// weights over, lend all memory to the engine that generates with them, take it back, train on.
//
// The weights go out as a stream of named tensors, one at a time, as they are or
// quantized. Then one call hands back every page that the trainer has: of steps and
// gradients, which nothing reads between steps, and of weights, moments and tables, which it
// writes to a file first. While the generator writes its text the trainer has nothing
// live and nothing reserved. One call takes all of it back, at the same addresses. At the
// end the weights are compared with those of a trainer that kept all of its memory:
// they are the same, bit for bit.
//
//	go run ./examples/refit
//	go run ./examples/refit -fp8 mxfp8 -as block
package main
