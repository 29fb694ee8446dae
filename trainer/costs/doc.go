// Package costs measures a model before its schedule is chosen: the durations of its stages'
// calls, and the bytes that they return, save, free and carry. weir sim and weir choose read
// the output of simulate.WriteCosts.
//
// [Measure] runs training steps of the stages on one rank, alternately with whole and with
// split backwards, and takes medians; sizes are for one microbatch of the largest size. [Hops]
// measures messages between two ranks of a process.
package costs
