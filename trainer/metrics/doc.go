// Package metrics is for a trainer's own figures: it keeps the memory of a run by microbatch,
// its times by rank, and its losses by step. It writes the memory log while the run goes on,
// and in the end a summary and a page.
//
// A [Run] gives the runner its hooks, is told of the model by [Run.Begin], wraps every
// training step in [Run.Step], and is told of losses. Its memory does not grow with
// microbatches or steps (L7), and nothing of it allocates or waits while a step runs.
package metrics
