// Package memlog writes and reads the memory log of a training run: one line of JSON for each
// microbatch and rank.
//
// [New] returns a [Log], whose method Sample is a hook for the runner; [Read] reads logs.
//
// A [Log] writes a [memory.Sample] as one line in schema 1:
//
//	schema time step rank microbatch stage action live peak reserved excess
//	growth weight wait_data, and classes, an object of the bytes by class, which
//	omits classes without bytes
//
// Sizes are in bytes, times in nanoseconds, and the field time counts from the Unix epoch; peak is the
// highest level since this rank's previous line. If there are several replicas, rank counts the ranks of
// all replicas, and replica follows it. [Log.Every] makes a log write only some of the records, and adds
// every to its lines; [File] is a file of limited size. live_planned and peak_planned, which follow live
// and peak, also belong to schema 1; they are absent unless memory is planned, and absence does not mean
// 0. So do far, far_peak and far_planned (the planned far_peak), for ranks that offload saved state;
// leak_stage, leak_name, leak_call and leak_class after growth, if it is positive and the call is known in
// which it was found; and peak_classes at the end, which is peak by class and is absent if the allocator
// does not report it.
//
// Lines of [Log.PeakOwner] describe the owners of memory at the peak of a step: before the
// steps if memory is planned, otherwise after the step. If tensors are in FP8, lines of [Log.FP8] give
// their statistics after each step.
//
// [Read] reads such lines, the lines of a [Dump], and a minimal form that any other trainer can write: an
// object with step, rank, microbatch, allocated, reserved and peak, and possibly other keys.
//
// This is the module's only package that imports zerolog.
package memlog
