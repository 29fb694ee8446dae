// Package metrics records a trainer's figures: a run's memory by microbatch, its times by rank,
// and its losses by step. It writes the memory log during the run, and a summary and a page at
// the end.
//
// A [Recorder] provides the runner's hooks. [Recorder.Begin] configures it for the model, [Recorder.Step] wraps
// every training step, and [Recorder.FinishStep] adds the loss. Its memory does not grow with
// microbatches or steps (L7), and it neither allocates nor blocks while a step runs.
package metrics
