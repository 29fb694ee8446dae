// Package calls calls the stages and the source of one rank.
//
// A [Caller] holds the facts about each stage of its rank. It lends a stage its arguments, and hands the
// stage's results over to the frames. It makes no decisions: package runner makes the calls in the order
// of a plan, releases tensors and audits; package record makes the calls for one microbatch and records
// their effects on memory. Both use the same code, so a recorded call has the effects of a call in a step.
//
// The frames own every handle between calls. Within a call the handles are in the scratch space of its
// [Stage], and Abort releases the handles of a failed call.
package calls
