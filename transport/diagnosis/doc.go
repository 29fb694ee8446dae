// Package diagnosis finds the ranks that hold up a job, and says why.
//
// [Of] diagnoses a running job from the statuses of its ranks. [Judge] is for readers of traces, which build a
// [Graph] of waits.
package diagnosis
