// Package calls calls the stages and the source of one rank.
//
// A [Caller] knows what the configuration means for each stage of its rank, lends a stage its
// arguments, and hands over what the stage returns. It decides nothing: package runner makes the
// calls in the order of a plan, drops and audits; package profile makes each call once and
// records what the call does to memory. Both make the same calls, so a recorded call is the call
// of a step.
//
// The frames own every handle between calls. Within a call the handles are in the scratch of
// its [Stage], and Abort releases what a failed call has left there.
package calls
