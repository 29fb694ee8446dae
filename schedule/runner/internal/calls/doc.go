// Package calls calls the stages and the source of one rank.
//
// A [Caller] has the facts about each stage of its rank, lends a stage its arguments, and hands
// over the stage's results. It makes no decisions: package runner makes the calls in the order of
// a plan, drops and audits; package profile makes each call once and records its effect on
// memory. Both make the same calls, so a recorded call equals the call of a step.
//
// The frames own every handle between calls. Within a call the handles are in the scratch of its
// [Stage], and Abort releases the handles of a failed call.
package calls
