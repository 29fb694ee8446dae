// Package diagnosis finds the ranks that hold up a job, and says why: in a running job, from what each
// rank is doing, and for readers of traces, from a graph of waits.
//
// [Of] diagnoses a running job, [Judge] a [Graph].
package diagnosis
