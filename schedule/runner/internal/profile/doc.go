// Package profile records what every stage allocates, keeps and releases, in a dry run.
//
// A [Recorder] sends one microbatch of each shape through all stages three times: in evaluation,
// with a whole backward, and with a split one. Package calls makes the calls, as it does in a
// step. A recording watches the space of the rank during each call and records the changes as a
// layout.Call. Between calls the Recorder replaces the plan, following package effects: it
// releases the arguments of a call, and copies its results to the next stage. These changes are
// not recorded.
//
// Package runner owns the ranks, their spaces and the configuration, and sets the source of each
// rank before the Recorder records a shape.
package profile
