// Package profile records which buffers every stage allocates, keeps and releases, in a dry run.
//
// A [Recorder] sends one microbatch of each shape through all stages three times: in training with
// a whole backward, in training with a split backward, and in evaluation. Package calls makes the
// calls, as in a step. A recording watches the space of the rank during each call and records the
// changes as a layout.Call. Between calls the Recorder does the work of a plan, following package
// effects: it releases the arguments of a call, and copies its results to the next stage. It does
// not record these changes.
//
// Package runner owns the ranks, their spaces and the configuration, and sets the source of each
// rank before the Recorder records a shape.
package profile
