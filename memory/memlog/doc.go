// Package memlog writes and reads the memory log of a training run: one line of JSON for each
// microbatch and rank.
//
// A [Log] writes a [memory.Sample] as one line in schema 1:
//
//	schema time step rank microbatch stage action live peak reserved excess
//	growth weight wait_data, and classes, an object of the bytes by class, of those
//	that have any
//
// Sizes are in bytes, times in nanoseconds, and time is since the Unix epoch; peak is the
// highest level since this rank's previous line. If there are several replicas, replica follows rank,
// which counts the ranks of all replicas. [Log.Every] writes only some of the records,
// and its lines have every; [File] is a file of limited size. live_planned and peak_planned,
// which follow live and peak, also belong to schema 1; they are absent unless memory is
// planned, and absent is not 0. So do far, far_peak and far_planned, which is the planned far_peak,
// for ranks that offload saved state, and peak_classes at the end, which is peak by class; it is absent if the allocator does not report
// it.
//
// Lines of [Log.PeakOwner] describe the owners of memory at the peak of a step: before the
// steps if memory is planned, otherwise after the step. If tensors are in FP8, lines of
// [Log.FP8] have their statistics after each step.
//
// [Read] reads such lines, the lines of a [Dump], and the minimal form that any other trainer
// can write: an object with step, rank, microbatch, allocated, reserved and peak, and any other
// keys.
//
// This package is the only one of the module that imports zerolog.
package memlog
