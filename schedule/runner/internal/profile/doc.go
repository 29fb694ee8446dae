// Package profile records what every stage allocates, keeps and releases, in a dry run.
//
// A [Recorder] sends one microbatch of each shape through all stages three times: in evaluation,
// with a whole backward, and with a split one. Package calls makes the calls, as it does in a step.
// A recording watches the space of the rank during each call and writes the changes down as a
// layout.Call. Between calls the Recorder does the work of a plan, as package effects says it: it
// ends the arguments of a call, and copies its results to the next stage. Nothing of this is recorded.
//
// Package runner owns the ranks, their spaces and the configuration, and gives each rank the source
// of a shape before the Recorder asks for it.
package profile
