// Package record records which buffers every stage of a model allocates, keeps and releases, in a dry
// run. A runner plans the memory of its steps from the resulting profile:
//
//	profile, err := record.Stages(ctx, dry, shape) // the same stages, on kernels.Null
//	cfg.Memory.Profile = profile                   // of the runner.Config that trains
//
// Unless all stages are [Profiled], [Stages] sends one microbatch of each shape through all of them three
// times: in training with a whole backward, in training with a split backward, and in evaluation. Package internal/calls
// makes the calls, as in a step. A recording watches the space of the rank during each call and records the
// changes as a layout.Call. Between calls the recorder does the work of a plan, following package
// effects: it releases the arguments of a call, and copies its results to the next stage. It does
// not record these changes.
package record
