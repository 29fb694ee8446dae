// Package costs is for measuring a model before choosing its schedule: the times of its
// stages' calls, and the bytes that they return, save, free and carry. weir sim and weir
// choose read what simulate.WriteCosts makes of it.
//
// [Measure] runs training steps of the stages on one rank, with whole and with split
// backwards in turn, and takes medians; sizes are those of one microbatch of the largest
// size. [Hops] measures messages between two ranks of a process.
package costs
